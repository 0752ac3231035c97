package modelserver

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// scrape is one consistent look at a server: everything in it was read at one
// moment.
type scrape struct {
	now      machine.Time
	engine   engine.Stats
	kvBlocks int
	adapters *adapterUse // nil where the server has none
	usage    *float64    // of the KV cache, where it is made up

	pretended []FakeUse // adapters that are made up
	gpu, cpu  int       // adapters in the accelerator and in host memory
	*stats
}

// kvUsage is the used fraction of the KV cache.
func (x *scrape) kvUsage(s *Server) float64 {
	if x.usage != nil {
		return *x.usage
	}
	if s.cfg.Batching == engine.BatchingIndependent || s.cfg.NumGPUBlocks == 0 {
		return 0
	}
	return float64(x.kvBlocks) / float64(s.cfg.NumGPUBlocks)
}

func (s *Server) scrape() (scrape, bool) {
	var x scrape
	ok := s.loop.ask(func(now machine.Time) {
		l := s.loop // a long run is counted up to now
		if l.stats.hardware != nil && l.eng.Computing() {
			l.eng.Input(now, engine.Look{}, &l.fx)
		}
		x = scrape{now: now, engine: l.eng.Stats(), kvBlocks: l.eng.KVBlocksUsed(), stats: l.stats.snapshot()}
		if len(s.adapters.list()) > 0 {
			x.adapters = l.adaptersInUse()
			x.gpu, x.cpu = len(l.eng.AdaptersInMemory(engine.TierGPU, nil)), len(l.eng.AdaptersInMemory(engine.TierCPU, nil))
		}
		if f := s.fake.Load(); f != nil {
			f.pretend(&x, time.Since(s.started))
		}
	})
	return x, ok
}

// metrics answers GET and HEAD /metrics in Prometheus' text format.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	delay, frozen := s.metricsFault()
	if delay > 0 && !pause.For(r.Context(), delay) {
		return
	}
	if frozen {
		s.pages.mu.Lock()
		page := s.pages.body
		s.pages.mu.Unlock()
		if page != nil {
			writeWhole(w, http.StatusOK, promType, page)
			return
		}
	}
	page, ok := s.page()
	if !ok {
		http.Error(w, "the server is stopping", http.StatusServiceUnavailable)
		return
	}
	writeWhole(w, http.StatusOK, promType, page)
}

const promType = "text/plain; version=0.0.4; charset=utf-8"

// pageKey is all that a metrics page depends on. An endpoint picker asks
// twenty times a second, of servers that mostly have done nothing since.
type pageKey struct {
	version  uint64
	second   int64 // while something happened lately: rates change with time alone
	adapters int
	sleep    int32
	fake     *FakeMetrics
}

type pageCache struct {
	mu   sync.Mutex
	key  pageKey
	body []byte
}

func (s *Server) page() ([]byte, bool) {
	var key pageKey
	if !s.loop.ask(func(now machine.Time) {
		l := s.loop
		key = pageKey{version: l.stats.version, second: -1, adapters: len(s.adapters.list()), sleep: s.sleepLevel.Load()}
		if l.eng.InFlight() > 0 || now < l.stats.active+2*rateSpan*machine.Second {
			key.second = int64(now / machine.Second)
		}
		if key.fake = s.fake.Load(); key.fake != nil {
			key.second = int64(now / fakeRefresh)
		}
	}) {
		return nil, false
	}
	s.pages.mu.Lock()
	defer s.pages.mu.Unlock()
	if s.pages.body != nil && s.pages.key == key {
		return s.pages.body, true
	}
	x, ok := s.scrape()
	if !ok {
		return nil, false
	}
	t := promText{b: make([]byte, 0, len(s.pages.body)+1024), labels: s.labels}
	s.writeVLLM(&t, &x)
	s.writeDocument(&t, &x)
	s.pages.key, s.pages.body = key, t.b
	return t.b, true
}

// promText builds Prometheus' text format.
type promText struct {
	b      []byte
	labels string // on every sample
	bucket []byte // scratch
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
	// What all buckets begin with is put together once: there are some hundred
	// on a page, and a pool's pages are asked for many times a second.
	t.bucket = append(append(t.bucket[:0], name...), "_bucket{"...)
	if t.labels != "" {
		t.bucket = append(append(t.bucket, t.labels...), ',')
	}
	t.bucket = append(t.bucket, `le="`...)
	b, prefix, total := t.b, t.bucket, uint64(0)
	for i, c := range h.counts {
		total += c
		b = append(b, prefix...)
		if i < len(h.bounds) {
			b = appendFloat(b, h.bounds[i])
		} else {
			b = append(b, "+Inf"...)
		}
		b = append(appendFloat(append(b, `"} `...), float64(total)), '\n')
	}
	t.b = b
	t.sample(name+"_count", "", float64(h.n))
	t.sample(name+"_sum", "", h.sum)
}

// promLabel is a label as the exposition format writes it, NAME="VALUE".
func promLabel(name, value string) string {
	value = strings.ToValidUTF8(value, "\ufffd") // the format knows no other text
	var b bytes.Buffer
	family := &dto.MetricFamily{Name: new("x"), Type: dto.MetricType_UNTYPED.Enum(), Metric: []*dto.Metric{{Label: []*dto.LabelPair{{Name: &name, Value: &value}}, Untyped: &dto.Untyped{}}}}
	if _, err := expfmt.MetricFamilyToText(&b, family); err != nil {
		panic(err) // a family without samples alone
	}
	_, label, _ := strings.Cut(b.String(), "{")
	return label[:strings.LastIndexByte(label, '}')]
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
