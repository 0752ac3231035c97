package scenario

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/windtunnel/windtunnel/core/workload/trace"
	"github.com/windtunnel/windtunnel/internal/files"
)

// WorkloadTrace is a file of requests that were once sent, as somebody published
// them.
type WorkloadTrace struct {
	// The file, from the scenario's own directory.
	File string `json:"file"`
	// What it is written in: azure, mooncake, burstgpt, bailian or sharegpt.
	Format TraceFormat `json:"format"`
	// How many times as fast as they came the requests come.
	Speedup float64 `json:"speedup" min:"0.000001" max:"1000000"`
	// How many tokens a hash id stands for. 0: as the format has it, 512 for mooncake and 16 for bailian.
	BlockSize int `json:"blockSize" min:"0" max:"65536"`
	// Each request comes up to so much after its time, evenly: for traces whose times are rounded down, as mooncake's are to 3s.
	Spread time.Duration `json:"spread" min:"0s" max:"1h"`
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
			return Problems{s.problem("workload.trace.file", "missing", "the path of a trace, from the scenario's own directory")}
		}
		return nil
	}
	var out Problems
	beside := func(expected string, fields ...string) {
		for _, field := range fields {
			if s.written("workload." + field) {
				out = append(out, s.problem("workload."+field, "given beside trace", expected))
			}
		}
	}
	beside("one of them: the trace says what is sent", "prompt", "maxTokens", "outputTokens", "conversations", "headers", "loraAdapters", "classes", "leaving", "bodyFields", "includeUsage")
	if t.Format == ShareGPTTrace {
		beside("nothing of trace.speedup, blockSize and spread: this format has neither times nor hash ids", "trace.speedup", "trace.blockSize", "trace.spread")
	} else {
		beside("one of them: the trace says when requests come", "rate", "concurrency", "arrivals", "burstiness", "stages", "bursts", "diurnal", "duration")
	}
	if len(out) > 0 {
		return out
	}
	path := t.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	mistake := func(err error) Problems {
		return Problems{s.problem("workload.trace.file", fmt.Sprintf("%s: %v", t.File, err), "a trace of the format "+string(t.Format))}
	}
	f, err := files.Open(path)
	if err != nil {
		return mistake(err)
	}
	defer f.Close()
	most := maxTraced
	if s.written("workload.requests") {
		most = min(most, w.Requests)
	}
	got, err := trace.Read(f, trace.Options{Format: string(t.Format), Most: most, Speedup: t.Speedup, Block: t.BlockSize, Spread: t.Spread.Seconds(), Seed: s.Seed, Stream: w.Stream, Chat: w.API == ChatAPI})
	if err != nil {
		return mistake(err)
	}
	if got.Untimed {
		s.recorded, s.untimed, w.Requests = got.Requests, true, len(got.Requests)
	} else {
		s.SendAgain(got.Requests)
	}
	s.read = append(s.read, path)
	for _, a := range got.Assumed {
		s.assumed = append(s.assumed, fmt.Sprintf("%s: %s", t.File, a))
	}
	return nil
}

// Assumed is what the scenario's files did not say and was made up, a sentence
// each, for whoever reads the run's figures.
func (s *Scenario) Assumed() []string { return s.assumed }
