package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/runlog"
)

// metrics is what a worker measures. Counts of rows and tiles are the meter's
// and are read when they are asked for; the rest is noted gradient by gradient.
type metrics struct {
	gradients, shortened, solves, unconverged prometheus.Counter
	products                                  *prometheus.CounterVec
	elements                                  prometheus.Counter // that were read from the cache of K
	iterations, residual, seconds             prometheus.Histogram
}

// What is read when it is asked for.
var (
	pairsFamily     = monitor.Counter("pairs_computed_total", "Elements of K that products ranged over, for the worker's own chains and for others.")
	busyFamily      = monitor.Counter("busy_seconds_total", "Time spent computing units of products, added up over the units.")
	tilesFamily     = monitor.Counter("tiles_served_total", "Units of products computed for other workers.")
	retriesFamily   = monitor.Counter("tile_retries_total", "Units given out again after a member of the group had failed.")
	hedgesFamily    = monitor.Counter("tile_hedges_total", "Units given out twice because they were overdue.")
	wrongFamily     = monitor.Counter("tile_wrong_total", "Units whose numbers, of a member of the group, were found to be wrong.")
	sentFamily      = monitor.Counter("tile_sent_bytes_total", "Bytes of tile traffic sent to other workers.")
	receivedFamily  = monitor.Counter("tile_received_bytes_total", "Bytes of tile traffic received from other workers.")
	hitsFamily      = monitor.Counter("data_cache_hits_total", "Tables that were in the cache when a job asked for them.")
	missesFamily    = monitor.Counter("data_cache_misses_total", "Tables that had to be fetched.")
	droppedFamily   = monitor.Counter("log_lines_dropped_total", "Lines of jobs' logs that could not be handed in.")
	drivenFamily    = monitor.Gauge("worker_chains", "Chains that the worker drives.")
	connectedFamily = monitor.Gauge("worker_connected", "1 while the worker has a session with the leading coordinator, else 0.")
	coresFamily     = monitor.Gauge("worker_cores", "Cores that the worker computes on.")

	workerFamilies = []monitor.Family{pairsFamily, busyFamily, tilesFamily, retriesFamily, hedgesFamily, wrongFamily, sentFamily, receivedFamily,
		hitsFamily, missesFamily, droppedFamily, drivenFamily, connectedFamily, coresFamily}
)

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: monitor.Namespace, Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: monitor.Namespace, Name: name, Help: help, Buckets: buckets})
	}
	m := &metrics{
		gradients:   counter("gradients_total", "Gradients of the log posterior, also those of the search for the mode."),
		shortened:   counter("gradients_shortened_total", "Gradients too steep to be followed to the end."),
		solves:      counter("solves_total", "Right-hand sides solved for."),
		unconverged: counter("solves_unconverged_total", "Right-hand sides whose solve stopped before its tolerance."),
		products: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: monitor.Namespace, Name: "products_total",
			Help: "Products of K with a block of vectors, by precision."}, []string{"precision"}),
		elements: counter("pairs_reused_total", "Elements of K that were kept from an earlier product."),
		iterations: histogram("solver_iterations", "Solver iterations of a gradient, mean over its right-hand sides.",
			[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}),
		residual: histogram("solver_residual_ratio", "Largest true relative residual of a gradient's solves.",
			[]float64{1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}),
		seconds: histogram("gradient_duration_seconds", "Time that a gradient took.",
			[]float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000}),
	}
	for _, p := range []string{"double", "single"} { // so that rates begin at 0
		m.products.WithLabelValues(p)
	}
	return m
}

// note counts what a gradient, or a step, cost.
func (m *metrics) note(o runlog.Observation) {
	if o.Kind == runlog.Trials {
		return
	}
	m.solves.Add(float64(o.Solves))
	m.unconverged.Add(float64(o.Unconverged))
	m.products.WithLabelValues("double").Add(float64(o.Products - o.Singles))
	m.products.WithLabelValues("single").Add(float64(o.Singles))
	m.elements.Add(o.PairsRead)
	if o.Kind == runlog.Gradient {
		m.gradients.Inc()
		m.seconds.Observe(o.Seconds)
	}
	if o.Solves > 0 {
		m.iterations.Observe(o.Iterations)
		m.residual.Observe(o.Residual)
	}
}

func (m *metrics) own() []prometheus.Collector {
	return []prometheus.Collector{m.gradients, m.shortened, m.solves, m.unconverged, m.products, m.elements, m.iterations, m.residual, m.seconds}
}

// Describe implements prometheus.Collector.
func (w *Worker) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range w.metrics.own() {
		c.Describe(ch)
	}
	for _, f := range workerFamilies {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector: what the worker measures.
func (w *Worker) Collect(ch chan<- prometheus.Metric) {
	for _, c := range w.metrics.own() {
		c.Collect(ch)
	}
	l := w.load()
	connected := 0.0
	if w.Connected() {
		connected = 1
	}
	for _, m := range []prometheus.Metric{
		pairsFamily.At(l.Pairs), busyFamily.At(l.BusySeconds), tilesFamily.At(float64(l.Tiles)),
		retriesFamily.At(float64(l.TileRetries)), hedgesFamily.At(float64(l.Hedges)), wrongFamily.At(float64(w.Meter.Wrong())),
		sentFamily.At(float64(l.BytesSent)), receivedFamily.At(float64(l.BytesReceived)),
		hitsFamily.At(float64(l.CacheHits)), missesFamily.At(float64(l.CacheMisses)), droppedFamily.At(float64(w.logs.lost())),
		drivenFamily.At(float64(w.Driving())), connectedFamily.At(connected), coresFamily.At(float64(w.Budget.Cores())),
	} {
		ch <- m
	}
}
