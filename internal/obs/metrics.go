package obs

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the figures of one server, in a registry of its own. Labels are
// bounded: routes come from the route table, never from a path.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	sent     *prometheus.CounterVec
	received *prometheus.CounterVec
	refusals *prometheus.CounterVec
	inFlight prometheus.Gauge
}

// NewMetrics returns metrics that name the running version.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cairn_request_seconds", Help: "Time from a request's header to the end of its answer, by route.",
			Buckets: []float64{.0001, .0005, .001, .002, .005, .01, .05, .1, .5, 1, 5, 30, 120},
		}, []string{"route"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_response_bytes_total", Help: "Bytes of answers' bodies, by route.",
		}, []string{"route"}),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_request_bytes_total", Help: "Bytes of requests' bodies, by route.",
		}, []string{"route"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_refusals_total", Help: "Requests refused or failed, by route and by the code of the error.",
		}, []string{"route", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cairn_requests_in_flight", Help: "Requests being answered now.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cairn_build_info", Help: "Always 1; the label names the version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.requests, m.seconds, m.sent, m.received, m.refusals, m.inFlight, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Refused counts a request that was refused, or failed, with a code, which is from
// a fixed set.
func (m *Metrics) Refused(route, code string) { m.refusals.WithLabelValues(route, code).Inc() }

// CountCorruption exports how often bytes that the metadata names were found
// missing or wrong; count is asked at each scrape. Call it once.
func (m *Metrics) CountCorruption(count func() int64) {
	m.Count("cairn_corruption_total", "Times that bytes named by the metadata were missing or wrong.", count)
}

// Count exports a counter that is kept elsewhere; count is asked at each scrape.
// Call it once for each name.
func (m *Metrics) Count(name, help string, count func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
		func() float64 { return float64(count()) }))
}

// Gauge exports a figure that goes up and down, as Count does a counter.
func (m *Metrics) Gauge(name, help string, value func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(value()) }))
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Request is one request being measured.
type Request struct {
	m     *Metrics
	route string
	start time.Time
}

// Begin starts to measure a request of a route.
func (m *Metrics) Begin(route string) Request {
	m.inFlight.Inc()
	return Request{m: m, route: route, start: time.Now()}
}

// End records the outcome of the request: status, and bytes of the bodies.
func (r Request) End(status int, received, sent int64) {
	r.m.inFlight.Dec()
	r.m.requests.WithLabelValues(r.route, strconv.Itoa(status)).Inc()
	r.m.seconds.WithLabelValues(r.route).Observe(time.Since(r.start).Seconds())
	r.m.received.WithLabelValues(r.route).Add(float64(received))
	r.m.sent.WithLabelValues(r.route).Add(float64(sent))
}
