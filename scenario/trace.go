package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/load/workload/trace"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/files"
)

// WorkloadTrace is a file of requests that were once sent, as somebody published
// them.
type WorkloadTrace struct {
	// The file, from the scenario's own directory; of servegen the directory of a model's clients, such as
	// data/language/m-large.
	File string `json:"file"`
	// What it is written in: azure, mooncake, burstgpt, bailian, sharegpt or servegen.
	Format TraceFormat `json:"format"`
	// How many times as fast as they came the requests come. workload.rate says it in requests per second instead.
	Speedup float64 `json:"speedup" min:"0.000001" max:"1000000"`
	// How many tokens a hash id stands for. 0: as the format has it, 512 for mooncake and 16 for bailian.
	BlockSize int `json:"blockSize" min:"0" max:"65536"`
	// Each request comes up to so much after its time, evenly: for traces whose times are rounded down, as mooncake's
	// are to 3s.
	Spread time.Duration `json:"spread" min:"0s" max:"1h"`
	// What comes sooner after its beginning is left out. How much of it follows is workload.duration, of its own time.
	From time.Duration `json:"from" min:"0s" max:"87600h"`
}

func (t *WorkloadTrace) defaults() { t.Format, t.Speedup = AzureTrace, 1 }

// maxTraced is how many requests of a trace are held.
const maxTraced = 10_000_000

// readTrace reads the requests that the workload takes from a file.
func (s *Scenario) readTrace(dir string) Problems {
	w := &s.Workload
	t := &w.Trace
	if t.File == "" {
		if s.written("workload.trace") {
			return Problems{s.problem("workload.trace.file", "missing",
				"the path of a trace, from the scenario's own directory")}
		}
		return nil
	}
	var out Problems
	refuse := func(expected string, fields ...string) {
		for _, field := range fields {
			if s.written("workload." + field) {
				out = append(out, s.problem("workload."+field, "given beside trace", expected))
			}
		}
	}
	refuse("one of them: the trace says what is sent", "prompt", "maxTokens", "outputTokens", "conversations",
		"headers", "loraAdapters", "classes", "leaving", "bodyFields", "includeUsage")
	switch t.Format {
	case ShareGPTTrace:
		refuse("nothing of trace.speedup, blockSize, spread and from: this format has neither times nor hash ids",
			"trace.speedup", "trace.blockSize", "trace.spread", "trace.from")
	case ServeGenTrace:
		refuse("nothing of trace.blockSize and spread: this format has no hash ids, and times of any length",
			"trace.blockSize", "trace.spread")
		refuse("one of them, or rate alone: the clients of the trace say when requests come", "concurrency", "arrivals",
			"burstiness", "stages", "bursts", "diurnal")
		if !s.written("workload.requests") && !s.written("workload.duration") {
			out = append(out, s.problem("workload.duration", "missing",
				"how long the clients send, such as 10m, or workload.requests: this format has no end"))
		}
	default:
		refuse("one of them, or rate alone: the trace says when requests come",
			"concurrency", "arrivals", "burstiness", "stages", "bursts", "diurnal")
		if w.Rate > 0 {
			refuse("one of them: rate, in requests per second on average, says how fast the trace is played, too",
				"trace.speedup")
		}
	}
	if len(out) > 0 {
		return out
	}
	path := beside(dir, t.File)
	mistake := func(err error) Problems {
		found, expected, said := strings.Cut(err.Error(), "; expected ") // as the readers of traces tell their mistakes
		if !said {
			expected = "a trace"
		}
		return Problems{s.problem("workload.trace.file",
			fmt.Sprintf("%s, read in the %s format: %s", t.File, t.Format, found), expected)}
	}
	o := trace.Options{Format: string(t.Format), Most: maxTraced, Speedup: t.Speedup, Block: t.BlockSize,
		Spread: t.Spread.Seconds(), From: t.From.Seconds(), Seed: s.Seed, Stream: w.Stream, Chat: w.API == ChatAPI}
	if s.written("workload.requests") {
		o.Most = min(o.Most, w.Requests)
	}
	if t.Format != ShareGPTTrace {
		o.For = w.Duration.Seconds()
	}
	read := s.readTraceFile
	if t.Format == ServeGenTrace {
		o.Rate, read = w.Rate, s.readClients
	}
	got, err := read(path, o)
	if err != nil {
		return mistake(err)
	}
	if got.Untimed {
		s.recorded, s.untimed, w.Requests = got.Requests, true, len(got.Requests)
	} else {
		s.SendAgain(got.Requests)
	}
	for _, a := range got.Assumed {
		s.assumed = append(s.assumed, fmt.Sprintf("%s: %s", t.File, a))
	}
	if w.Rate > 0 && t.Format != ServeGenTrace && !got.Untimed {
		if found, expected := s.pace(w.Rate); found != "" {
			return Problems{s.problem("workload.rate", found, expected)}
		}
	}
	return nil
}

// Timed tells how many requests per second come on average where a trace says when they come, and how many times
// as fast as they once came; both are 0 where nothing was recorded.
func (s *Scenario) Timed() (rate, speedup float64) {
	if s.recorded == nil || s.untimed {
		return 0, 0
	}
	return workload.RateOf(s.recorded), s.Workload.Trace.Speedup
}

// Paced says how fast the trace is played where a rate says that; empty where none does.
func (s *Scenario) Paced() string {
	rate, speedup := s.Timed()
	if !s.paced || rate == 0 {
		return ""
	}
	return fmt.Sprintf("%s is played %.4g times as fast as it was recorded, for %.4g requests/s on average",
		s.Workload.Trace.File, speedup, rate)
}

// pace has the requests of a trace come at this many per second on average. Where it cannot, it says what it found and
// what it expected.
func (s *Scenario) pace(rate float64) (found, expected string) {
	now, _ := s.Timed()
	if now == 0 {
		return fmt.Sprintf("found %v, and all requests of the trace come at one time, so that no speed makes it a rate",
			rate), "no rate, or trace.spread to have requests come later, evenly"
	}
	s.recorded = slices.Clone(s.recorded)
	for i := range s.recorded {
		s.recorded[i].At = machine.Time(float64(s.recorded[i].At) * now / rate)
	}
	s.Workload.Trace.Speedup, s.paced = s.Workload.Trace.Speedup*rate/now, true
	return "", ""
}

// readTraceFile reads a trace that is one file.
func (s *Scenario) readTraceFile(path string, o trace.Options) (*trace.Trace, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s.read = append(s.read, path)
	return trace.Read(f, o)
}

// readClients reads a directory of ServeGen's clients, each of which has two files.
func (s *Scenario) readClients(dir string, o trace.Options) (*trace.Trace, error) {
	const tail = "-trace.csv"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{}
	for _, e := range entries {
		chunk, is := strings.CutPrefix(strings.TrimSuffix(e.Name(), tail), "chunk-")
		if n, err := strconv.Atoi(chunk); is && err == nil && strings.HasSuffix(e.Name(), tail) {
			numbers[filepath.Join(dir, e.Name())] = n
		}
	}
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[a], numbers[b]), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		return nil, errors.New("it has no file chunk-1" + tail)
	}
	var clients []trace.Client
	for _, name := range names {
		head := strings.TrimSuffix(name, tail)
		rates, lengths := files.Lazy{Path: name}, files.Lazy{Path: head + "-dataset.json"}
		defer rates.Close()
		defer lengths.Close()
		s.read = append(s.read, rates.Path, lengths.Path)
		clients = append(clients, trace.Client{Name: filepath.Base(head), Trace: &rates, Dataset: &lengths})
	}
	return trace.Generate(clients, o)
}

// Assumed is what the scenario's files did not say and was made up, a sentence
// each, for whoever reads the run's figures.
func (s *Scenario) Assumed() []string { return s.assumed }
