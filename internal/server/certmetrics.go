package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// certMetrics exports when the certificates end that a process uses.
type certMetrics struct{ own, http *tlsconf.Source }

var certFamily = monitor.Gauge("certificate_expiry_timestamp_seconds",
	"When a certificate ends that the process shows (kind certificate, or http) or trusts (kind authority).", "kind", "subject", "sha256")

// Describe implements prometheus.Collector.
func (certMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- certFamily.Desc() }

// Collect implements prometheus.Collector.
func (m certMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, e := range m.own.Expiries() {
		ch <- certFamily.At(float64(e.To.Unix()), e.Kind, e.Subject, e.SHA256)
	}
	if m.http == m.own {
		return
	}
	for _, e := range m.http.Expiries() {
		if e.Kind == "certificate" {
			ch <- certFamily.At(float64(e.To.Unix()), "http", e.Subject, e.SHA256)
		}
	}
}
