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

// Server holds the constant properties of a model server.
type Server struct {
	// Engine is the engine's configuration, with its defaults filled in.
	Engine engine.Config
	// Model is the label model_name.
	Model string
	// MemoryBytes is the memory that one accelerator uses besides the KV cache. TensorParallel is the number of
	// accelerators that share the cache; 0 is 1.
	MemoryBytes    int64
	TensorParallel int
	// SpeculativeTokens is the number of tokens drafted at once, if the server is configured to speculate.
	SpeculativeTokens int
	// Transfers is the name of the KV connector in metrics (link.Profile.Metrics). KVConsumer states that caches may be
	// transferred to this server.
	Transfers  string
	KVConsumer bool
	// SGLang is the label engine_type of SGLang's metrics, unified, prefill or decode. Empty means vLLM's metrics.
	SGLang string

	cache []metrics.Label // of cacheConfig; nil: not computed yet
}

// Remember computes once the labels of the configuration that every look writes. The configuration must not change
// afterwards.
func (s *Server) Remember() { s.cache = s.cacheConfig() }

// Look is a view of a server at one time.
type Look struct {
	*Stats
	Server *Server
	Now    machine.Time
	// Unix is the same time in seconds since 1970. In virtual time, which has no date, it counts from the beginning of
	// the run.
	Unix     float64
	Engine   engine.Stats
	KVBlocks int // in use
	// KVHeld is the number of blocks with content, in use or cached. KVFindable is the number that requests can find by
	// the hash of their content.
	KVHeld, KVFindable int
	// Loads and Stores are the moves from and to host memory.
	Loads, Stores engine.Moves
	// Adapters are those of running and of waiting requests; nil if the server has none.
	Adapters *AdapterUse
	// SleepLevel is 0 if the server is awake.
	SleepLevel int
	// MediaQueries and MediaHits count the lookups of images and other media.
	MediaQueries, MediaHits float64

	usage     *float64 // of the KV cache, if it is fake
	pretended []FakeUse
}

// AdapterUse names the adapters of running and of waiting requests, each once, separated by commas. It also counts the
// adapters in the accelerator's slots and in host memory.
type AdapterUse struct {
	Running, Waiting string
	GPU, CPU         int
}

// At returns a view of an engine that has processed everything due.
func (s *Stats) At(now machine.Time, server *Server, e *engine.Engine) Look {
	x := Look{Stats: s, Server: server, Now: now, Engine: e.Stats(), KVBlocks: e.KVBlocksUsed()}
	x.KVHeld, x.KVFindable = e.KVBlocksHeld()
	x.Loads, x.Stores = e.CPUMoves()
	return x
}

// UseAdapters sets the adapters that an engine's sequences use.
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

// WriteNow writes the families that describe only the present state and count nothing.
func (x *Look) WriteNow(w metrics.Writer) {
	w.Labels(x.own()...)
	x.writeState(w)
	w.Labels()
	x.writeInfo(w)
}

func (x *Look) own() []metrics.Label {
	return []metrics.Label{{Name: "model_name", Value: x.Server.Model}, {Name: "engine", Value: "0"}}
}

// Write writes all families of metrics.
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

// KVUsage returns the used fraction of the KV cache.
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

// Recent returns the output tokens per second, and the share of the time in which the engine computed, over the last
// ten seconds.
func (x *Look) Recent() (tokens, busy float64) {
	recent, span := x.rates.recent(x.Now)
	return float64(recent.generated) / span, min(1, recent.busy.Seconds()/span)
}

// HitRate returns the share of the prompt tokens that the prefix cache held.
func (x *Look) HitRate() float64 {
	if x.QueriedTokens == 0 {
		return 0
	}
	return float64(x.CachedTokens) / float64(x.QueriedTokens)
}

// Moment is the version of a look. Two looks at a server with equal Moments are the same, which saves work when clients
// ask twenty times a second.
type Moment struct {
	version uint64
	blocks  int   // in use: they grow with every step, and not every step is reported
	second  int64 // during recent activity: rates change with time alone
}

// Moment returns the Moment of an engine that has processed everything due.
func (s *Stats) Moment(now machine.Time, e *engine.Engine) Moment {
	m := Moment{s.version, e.KVBlocksUsed(), -1}
	if e.InFlight() > 0 || now < s.active+2*rateSpan*machine.Second {
		m.second = int64(now / machine.Second)
	}
	return m
}

// familyTable has a line for each family of metrics: its name, its type and its help text.
//
//go:embed families.txt
var familyTable string

// abouts maps each family's name to its type and its help text.
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

// one writes a family with one sample.
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

// series writes a family with several samples that differ in one label.
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
