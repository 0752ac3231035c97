package modelserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
)

// scrape is one consistent look at a server: everything in it was read in the
// loop at one moment.
type scrape struct {
	now    machine.Time
	engine engine.Stats
	*stats
}

func (s *Server) scrape() (scrape, bool) {
	var x scrape
	ok := s.loop.ask(func(now machine.Time) {
		x = scrape{now: now, engine: s.loop.eng.Stats(), stats: s.loop.stats.snapshot()}
	})
	return x, ok
}

// metrics answers GET and HEAD /metrics in Prometheus' text format.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	x, ok := s.scrape()
	if !ok {
		http.Error(w, "the server is stopping", http.StatusServiceUnavailable)
		return
	}
	t := promText{labels: `model_name="` + promEscape(s.opts.Models[0]) + `",engine="0"`}
	s.writeVLLM(&t, &x)
	writeWhole(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", t.b)
}

// promText builds Prometheus' text format.
type promText struct {
	b      []byte
	labels string // on every sample
}

func (t *promText) family(name, kind, help string) {
	t.b = append(t.b, "# HELP "...)
	t.b = append(t.b, name...)
	t.b = append(t.b, ' ')
	t.b = append(t.b, help...)
	t.b = append(t.b, "\n# TYPE "...)
	t.b = append(t.b, name...)
	t.b = append(t.b, ' ')
	t.b = append(t.b, kind...)
	t.b = append(t.b, '\n')
}

func (t *promText) sample(name, labels string, v float64) {
	t.b = append(t.b, name...)
	if t.labels != "" || labels != "" {
		t.b = append(t.b, '{')
		t.b = append(t.b, t.labels...)
		if t.labels != "" && labels != "" {
			t.b = append(t.b, ',')
		}
		t.b = append(t.b, labels...)
		t.b = append(t.b, '}')
	}
	t.b = append(t.b, ' ')
	t.b = appendFloat(t.b, v)
	t.b = append(t.b, '\n')
}

func appendFloat(b []byte, v float64) []byte {
	if v == float64(int64(v)) && v < 1e15 && v > -1e15 {
		return append(strconv.AppendInt(b, int64(v), 10), '.', '0')
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func (t *promText) gauge(name, help string, v float64) {
	t.family(name, "gauge", help)
	t.sample(name, "", v)
}

// counter writes a counter; name ends in _total.
func (t *promText) counter(name, help string, v float64) {
	t.family(name, "counter", help)
	t.sample(name, "", v)
}

func (t *promText) histogram(name, help string, h *histogram) {
	t.family(name, "histogram", help)
	var total uint64
	for i, c := range h.counts {
		total += c
		le := `le="+Inf"`
		if i < len(h.bounds) {
			le = `le="` + string(appendFloat(nil, h.bounds[i])) + `"`
		}
		t.sample(name+"_bucket", le, float64(total))
	}
	t.sample(name+"_count", "", float64(h.n))
	t.sample(name+"_sum", "", h.sum)
}

func promEscape(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
