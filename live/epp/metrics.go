package epp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// serverMetrics are the server's own metrics, under the real EPP's names.
type serverMetrics struct {
	processing prometheus.Histogram

	// Of streams, registered if asked for.
	inflight   prometheus.Gauge
	streamTime prometheus.Histogram
	streams    *prometheus.CounterVec
}

func newMetrics(r *prometheus.Registry, aboutStreams bool) *serverMetrics {
	m := &serverMetrics{
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "llm_d_epp_extproc_streams_inflight",
			Help: "ext_proc streams that have not ended."}),
		processing: prometheus.NewHistogram(
			prometheus.HistogramOpts{Name: "llm_d_epp_request_processing_duration_seconds",
				Help: "From the request's last byte to the first message out.",
				// Whoever asks in protobuf gets native buckets too, at most 5 % apart.
				NativeHistogramBucketFactor: 1.05, NativeHistogramMaxBucketNumber: 400,
				Buckets: []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5,
					5,
					10}}),
		streamTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "llm_d_epp_extproc_stream_duration_seconds",
			Help:    "How long an ext_proc stream was open.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600}}),
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "llm_d_epp_extproc_streams_total",
			Help: "ext_proc streams by the gRPC code that ended them."}, []string{"code"}),
	}
	r.MustRegister(m.processing)
	if aboutStreams {
		r.MustRegister(m.inflight, m.streamTime, m.streams)
	}
	return m
}

// ended is told when a stream is over.
func (m *serverMetrics) ended(took time.Duration, err error) {
	m.streamTime.Observe(took.Seconds())
	m.streams.WithLabelValues(status.Code(err).String()).Inc()
}
