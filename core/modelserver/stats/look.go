package stats

import (
	_ "embed"
	"iter"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Server is what does not change of a model server.
type Server struct {
	// Engine is its engine's configuration, with defaults.
	Engine engine.Config
	// Model is the label model_name.
	Model string
	// MemoryBytes is how much of one accelerator is taken but for the KV cache,
	// and TensorParallel over how many the cache is spread; 0 is 1.
	MemoryBytes    int64
	TensorParallel int
	// SpeculativeTokens is the number of tokens drafted at once where the server
	// is said to speculate.
	SpeculativeTokens int
	// Transfers is what metrics call the connector by which KV caches travel
	// (link.Profile.Metrics), and KVConsumer says that they may come here.
	Transfers  string
	KVConsumer bool
	// SGLang is the label engine_type of SGLang's metrics, unified, prefill or decode. Empty means vLLM's metrics.
	SGLang string

	cache []metrics.Label // of cacheConfig; nil: not remembered
}

// Remember has what every look tells of the configuration worked out once. Nothing of
// it may change from then on.
func (s *Server) Remember() { s.cache = s.cacheConfig() }

// Look is a server at one moment.
type Look struct {
	*Stats
	Server *Server
	Now    machine.Time
	// Unix is the same moment in seconds since 1970; in virtual time, which has
	// no date, since the run began.
	Unix     float64
	Engine   engine.Stats
	KVBlocks int // in use
	// KVHeld are those that hold something, in use or cached; KVFindable can be
	// found by the hash of their content.
	KVHeld, KVFindable int
	// Loads and Stores are what was moved from and to host memory.
	Loads, Stores engine.Moves
	// Adapters are those of running and of waiting requests; nil where the server
	// has none.
	Adapters *AdapterUse
	// SleepLevel is 0 where the server is awake.
	SleepLevel int
	// MediaQueries and MediaHits count the look-ups of images and the like.
	MediaQueries, MediaHits float64

	usage     *float64 // of the KV cache, where it is made up
	pretended []FakeUse
}

// AdapterUse names the adapters of running and of waiting requests, each once,
// with commas, and counts those in the accelerator's slots and in host memory.
type AdapterUse struct {
	Running, Waiting string
	GPU, CPU         int
}

// At looks at an engine that has played what was due.
func (s *Stats) At(now machine.Time, server *Server, e *engine.Engine) Look {
	x := Look{Stats: s, Server: server, Now: now, Engine: e.Stats(), KVBlocks: e.KVBlocksUsed()}
	x.KVHeld, x.KVFindable = e.KVBlocksHeld()
	x.Loads, x.Stores = e.CPUMoves()
	return x
}

// UseAdapters tells the look of the adapters that an engine's sequences use.
func (x *Look) UseAdapters(e *engine.Engine, sequences iter.Seq[*Sequence]) {
	var running, waiting []string
	for q := range sequences {
		switch {
		case q.Adapter == "":
		case q.Scheduled():
			running = append(running, q.Adapter)
		default:
			waiting = append(waiting, q.Adapter)
		}
	}
	join := func(names []string) string {
		slices.Sort(names)
		return strings.Join(slices.Compact(names), ",")
	}
	x.Adapters = &AdapterUse{join(running), join(waiting), len(e.AdaptersInMemory(engine.TierGPU, nil)),
		len(e.AdaptersInMemory(engine.TierCPU, nil))}
}

// WriteNow tells the families that say only how things stand at the moment, and
// count nothing.
func (x *Look) WriteNow(w metrics.Writer) {
	w.Labels(x.own()...)
	x.writeState(w)
	w.Labels()
	x.writeInfo(w)
}

func (x *Look) own() []metrics.Label {
	return []metrics.Label{{Name: "model_name", Value: x.Server.Model}, {Name: "engine", Value: "0"}}
}

// Write tells all families of metrics.
func (x *Look) Write(w metrics.Writer) {
	own := x.own()
	if x.Server.SGLang != "" {
		x.writeSGLang(w)
		w.Labels(own...)
		x.writeAdapters(w)
		return
	}
	w.Labels(own...)
	x.writeState(w)
	x.writeEngine(w)
	w.Labels()
	x.writeInfo(w)
	w.Labels(own...)
	x.writeAdapters(w)
	x.writeDocument(w)
}

// KVUsage is the used fraction of the KV cache.
func (x *Look) KVUsage() float64 {
	c := &x.Server.Engine
	switch {
	case x.usage != nil:
		return *x.usage
	case c.Batching == engine.BatchingIndependent || c.NumGPUBlocks == 0:
		return 0
	}
	return float64(x.KVBlocks) / float64(c.NumGPUBlocks)
}

// Recent are output tokens per second, and the part of the time in which the
// engine computed, over the last ten seconds.
func (x *Look) Recent() (tokens, busy float64) {
	recent, span := x.rates.recent(x.Now)
	return float64(recent.generated) / span, min(1, recent.busy.Seconds()/span)
}

// HitRate is the part of the prompt tokens that the prefix cache held.
func (x *Look) HitRate() float64 {
	if x.QueriedTokens == 0 {
		return 0
	}
	return float64(x.CachedTokens) / float64(x.QueriedTokens)
}

// Moment is all that a look depends on: of a server that has done nothing since,
// another one says the same. Servers are asked twenty times a second.
type Moment struct {
	version uint64
	blocks  int   // in use: they grow with every step, and not every step is told
	second  int64 // while something happened lately: rates change with time alone
}

// Moment is that of a look at an engine that has played what was due.
func (s *Stats) Moment(now machine.Time, e *engine.Engine) Moment {
	m := Moment{s.version, e.KVBlocksUsed(), -1}
	if e.InFlight() > 0 || now < s.active+2*rateSpan*machine.Second {
		m.second = int64(now / machine.Second)
	}
	return m
}

// familyTable has a line for each family of metrics: its name, its kind and its help text.
//
//go:embed families.txt
var familyTable string

// abouts are the kind and the help text of each family by its name.
var abouts = func() map[string][2]string {
	out := map[string][2]string{}
	for line := range strings.Lines(familyTable) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		out[parts[0]] = [2]string{parts[1], parts[2]}
	}
	return out
}()

// family begins a family of the table, and reports whether the reader wants it.
func family(w metrics.Writer, name string) bool {
	if c, ok := w.(*metrics.Collector); ok && c.Skips(name) {
		return false
	}
	about := abouts[name]
	return w.Family(name, about[0], about[1])
}

// one writes a family of one sample.
func one(w metrics.Writer, name string, value float64) {
	if family(w, name) {
		w.Sample(value)
	}
}

func histogramOf(w metrics.Writer, name string, h *histogram) {
	if family(w, name) {
		w.Histogram(h.bounds, h.counts, h.sum)
	}
}

// series writes a family of several samples that differ in one label.
func series(w metrics.Writer, name, label string, samples ...value) {
	if !family(w, name) {
		return
	}
	for _, s := range samples {
		w.Sample(s.v, metrics.Label{Name: label, Value: s.of})
	}
}

// value is one sample of a series, by its label's value.
type value struct {
	of string
	v  float64
}
