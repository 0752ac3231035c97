package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/live/serve"
)

// metrics are document 003's metrics of the sidecar.
type metrics struct {
	registry          *prometheus.Registry
	success, failure  prometheus.Counter
	duration          prometheus.Summary
	prefills, decodes prometheus.Counter
	transferBytes     prometheus.Counter
	transferSeconds   prometheus.Summary
	connections       prometheus.Gauge
	connectionErrors  prometheus.Counter
	blocked           prometheus.Counter
	allowed           prometheus.Gauge
	sessions          prometheus.Gauge

	reresolved, ipChanged, lookupFailures prometheus.Counter // MoRI-IO's peers
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "llmd_sidecar_" + name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	summary := func(name, help string) prometheus.Summary {
		s := prometheus.NewSummary(prometheus.SummaryOpts{Name: "llmd_sidecar_" + name, Help: help,
			Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, MaxAge: 10 * time.Minute})
		m.registry.MustRegister(s)
		return s
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "llmd_sidecar_requests_total",
		Help: "Requests that generate tokens, by how they ended."}, []string{"status"})
	m.registry.MustRegister(requests)
	m.success, m.failure = requests.WithLabelValues("success"), requests.WithLabelValues("failure")
	m.duration = summary("request_duration_seconds", "Time from a request's arrival to its answer's end.")
	m.transferSeconds = summary("kv_cache_transfer_duration_seconds",
		"Time of the KV transfer after a prefill leg: as the decode server says, or from the decode leg's beginning "+
			"to the first byte of a streamed answer.")
	m.connections = gauge("active_connections", "Open client connections.")
	m.allowed = gauge("allowlist_size", "Addresses that a request may name as prefiller.")
	m.sessions = gauge("sessions", "Sessions whose KV handle is kept.")
	for _, c := range []struct {
		to         *prometheus.Counter
		name, help string
	}{
		{&m.prefills, "llmd_sidecar_prefill_requests_total", "Prefill legs sent, tries included."},
		{&m.decodes, "llmd_sidecar_decode_requests_total", "Requests sent to the decode server."},
		{&m.transferBytes, "llmd_sidecar_kv_cache_transfer_bytes",
			"KV cache named by prefill servers for the decode server to fetch, in bytes."},
		{&m.connectionErrors, "llmd_sidecar_connection_errors_total", "Legs that could not be reached or broke off."},
		{&m.blocked, "llmd_sidecar_ssrf_blocked_requests_total", "Requests that named a server outside the pool."},
		{&m.reresolved, "moriio_dns_reresolve_total", "Names of MoRI-IO peers that were looked up again."},
		{&m.ipChanged, "moriio_dns_ip_changed_total", "Look-ups that found another address than before."},
		{&m.lookupFailures, "moriio_dns_lookup_failures_total", "Look-ups that failed; the last address stays."},
	} {
		*c.to = prometheus.NewCounter(prometheus.CounterOpts{Name: c.name, Help: c.help})
		m.registry.MustRegister(*c.to)
	}
	return m
}

// ended counts a request that generates tokens.
func (m *metrics) ended(x *disagg.ClientRequest, t disagg.Times, ok bool, blockBytes int64) {
	if ok {
		m.success.Inc()
	} else {
		m.failure.Inc()
	}
	m.duration.Observe(t.Total.Seconds())
	if x.Blocked() > 0 {
		m.blocked.Inc()
	}
	if t.Transfer > 0 {
		m.transferSeconds.Observe(t.Transfer.Seconds())
	}
	if ok && x.Blocks() > 0 {
		m.transferBytes.Add(float64(int64(x.Blocks()) * blockBytes))
	}
}

// own serves the sidecar's metrics without the decode server's.
func (m *metrics) own() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// sessions writes document 002's session cache, the most recently used session first.
func (s *Sidecar) sessions(w http.ResponseWriter, all *disagg.Sessions) {
	type session struct {
		Name     string  `json:"session"`
		Handle   string  `json:"kvHandle"`
		Tokens   int     `json:"tokens"`
		Messages int     `json:"messages"`
		Unused   float64 `json:"secondsSinceUse"`
	}
	out := []session{}
	s.locked(func() {
		for _, v := range all.List() {
			out = append(out, session{v.ID, v.Handle, v.Tokens, v.Messages,
				max(0, (s.now() - v.Used).Duration().Seconds())})
		}
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // an error means that the client has left
}

// page serves the decode server's metrics and the sidecar's own on one page.
func (k *rank) page(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(r.Context(), metricsTimeout)
	defer cancel()
	if err := k.workerMetrics(ctx, &b); err != nil {
		b.Reset()
		k.s.log.Debug("the decode server's metrics cannot be read", "error", err)
	}
	families, err := k.s.metrics.registry.Gather()
	if err != nil {
		serve.Failed(w, err)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	enc := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			serve.Failed(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", string(format))
	_, _ = w.Write(b.Bytes()) // an error means that the client has left
}

func (k *rank) workerMetrics(ctx context.Context, b *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.decoder.String()+"/metrics", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := k.s.decodeWay.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxWorkerMetrics))
		return err
	}
	if _, err = b.ReadFrom(io.LimitReader(resp.Body, maxWorkerMetrics)); err == nil && b.Len() > 0 &&
		b.Bytes()[b.Len()-1] != '\n' {
		b.WriteByte('\n')
	}
	return err
}
