package monitor

import (
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ulisse-gp/ulisse/internal/version"
)

// Namespace begins the names of all our metrics.
const Namespace = "ulisse"

// NewRegistry returns a registry that holds the collectors of the Go runtime
// and of the process, and what was built.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo{})
	return r
}

// buildInfo is a 1 with the versions as labels, and the process's clock.
type buildInfo struct{}

var clock = Gauge("clock_timestamp_seconds", "What the process's clock shows, since 1970: its distance from the time of the scrape is the clock's error.")

var buildDesc = prometheus.NewDesc(Namespace+"_build_info", "Always 1; its labels say which version runs.", []string{"version", "go_version", "architecture"}, nil)

func (buildInfo) Describe(ch chan<- *prometheus.Desc) {
	ch <- buildDesc
	ch <- clock.desc
}

func (buildInfo) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1, version.Version, strings.TrimPrefix(runtime.Version(), "go"), runtime.GOARCH)
	ch <- clock.At(float64(time.Now().UnixMilli()) / 1e3)
}

// Family is a metric whose value is read when it is asked for.
type Family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Gauge makes a family of values that go up and down.
func Gauge(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc(Namespace+"_"+name, help, labels, nil), prometheus.GaugeValue}
}

// Counter makes a family of values that only grow while the process lives.
func Counter(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc(Namespace+"_"+name, help, labels, nil), prometheus.CounterValue}
}

// Desc describes the family.
func (f Family) Desc() *prometheus.Desc { return f.desc }

// At returns the value for the labels, in the order in which they were named.
func (f Family) At(x float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(f.desc, f.kind, x, labels...)
}
