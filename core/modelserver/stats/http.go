package stats

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// HTTP counts the traffic of a server's HTTP interface, under the names that prometheus-fastapi-instrumentator gives
// the metrics in vLLM (vllm/entrypoints/serve/instrumentator/metrics.py). The zero value is ready. Several goroutines
// need a lock of their own.
type HTTP struct {
	groups  map[group]*counts
	all     histogram // durations, with fine buckets
	version uint64
}

// group is the key of the counts: there are as many groups as routes, methods and classes of statuses.
type group struct {
	handler, method string
	class           int // 2 is 2xx
}

func (k *group) status() string { return strconv.Itoa(k.class) + "xx" }

type counts struct {
	n       uint64
	seconds histogram
	in, out float64 // bytes
}

var (
	httpFineBounds = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5,
		10, 30, 60}
	httpBounds = []float64{0.1, 0.5, 1}
	// unmeasured are the paths whose requests vLLM does not count.
	unmeasured = []string{"/metrics", "/health", "/load", "/ping", "/version", "/server_info"}
)

// Exchange is one request with its answer.
type Exchange struct {
	// Handler is the route's path, empty without a route.
	Handler, Method string
	Status          int
	// Seconds is the time until the answer's last byte. In and Out are the bytes of both bodies.
	Seconds float64
	In, Out int64
}

// Observe counts one request.
func (h *HTTP) Observe(e *Exchange) {
	x := h.groups[group{e.Handler, e.Method, e.Status / 100}]
	if x == nil {
		if x = h.countsOf(e); x == nil {
			return
		}
	}
	x.n++
	x.in += float64(e.In)
	x.out += float64(e.Out)
	x.seconds.observe(e.Seconds)
	h.all.observe(e.Seconds)
	h.version++
}

// countsOf returns the counts for the first request of a group, or for one that is counted under another name. It
// returns nil if the request is not counted.
func (h *HTTP) countsOf(e *Exchange) *counts {
	if slices.Contains(unmeasured, e.Handler) {
		return nil
	}
	k := group{cmp.Or(e.Handler, "none"), e.Method, e.Status / 100}
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, k.method) {
		k.method = "none"
	}
	if h.groups == nil {
		h.groups, h.all = map[group]*counts{}, newHistogram(httpFineBounds)
	}
	x := h.groups[k]
	if x == nil {
		x = &counts{seconds: newHistogram(httpBounds)}
		h.groups[k] = x
	}
	return x
}

// Version changes whenever the counts do.
func (h *HTTP) Version() uint64 { return h.version }

// Write writes the families.
func (h *HTTP) Write(w metrics.Writer) {
	if len(h.groups) == 0 {
		return
	}
	keys := make([]group, 0, len(h.groups))
	for k := range h.groups {
		keys = append(keys, k)
	}
	machine.SortFunc(keys, func(a, b group) int {
		return strings.Compare(a.handler+" "+a.method+" "+a.status(), b.handler+" "+b.method+" "+b.status())
	})
	w.Labels()
	if family(w, "http_requests_total") {
		for _, k := range keys {
			w.Sample(float64(h.groups[k].n), metrics.Label{Name: "handler", Value: k.handler},
				metrics.Label{Name: "method", Value: k.method}, metrics.Label{Name: "status", Value: k.status()})
		}
	}
	h.size(w, keys, "http_request_size_bytes", func(x *counts) float64 { return x.in })
	h.size(w, keys, "http_response_size_bytes", func(x *counts) float64 { return x.out })
	histogramOf(w, "http_request_duration_highr_seconds", &h.all)
	if family(w, "http_request_duration_seconds") {
		for route := range grouped(keys, func(k group) group { return group{handler: k.handler, method: k.method} }) {
			sum := newHistogram(httpBounds)
			for _, k := range route {
				sum.merge(&h.groups[k].seconds)
			}
			w.Labels(metrics.Label{Name: "handler", Value: route[0].handler},
				metrics.Label{Name: "method", Value: route[0].method})
			w.Histogram(sum.bounds, sum.counts, sum.sum)
		}
	}
	w.Labels()
}

// size writes one of the summaries by handler.
func (h *HTTP) size(w metrics.Writer, keys []group, name string, of func(*counts) float64) {
	if !family(w, name) {
		return
	}
	for handler := range grouped(keys, func(k group) group { return group{handler: k.handler} }) {
		n, sum := uint64(0), 0.0
		for _, k := range handler {
			n, sum = n+h.groups[k].n, sum+of(h.groups[k])
		}
		w.Labels(metrics.Label{Name: "handler", Value: handler[0].handler})
		w.Summary(n, sum)
	}
	w.Labels()
}

// grouped iterates over the runs of keys with equal values of by.
func grouped(keys []group, by func(group) group) iter.Seq[[]group] {
	return func(yield func([]group) bool) {
		for first := 0; first < len(keys); {
			end := first + 1
			for end < len(keys) && by(keys[end]) == by(keys[first]) {
				end++
			}
			if !yield(keys[first:end]) {
				return
			}
			first = end
		}
	}
}

// merge adds another histogram with the same bounds.
func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.sum += o.sum
	h.n += o.n
}
