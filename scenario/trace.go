package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/load/workload/trace"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/files"
)

// WorkloadTrace is a published file of recorded requests.
type WorkloadTrace struct {
	// The file, from the scenario's own directory; of servegen the directory of a model's clients, such as
	// data/language/m-large.
	File string `json:"file"`
	// The format of the file: azure, mooncake, burstgpt, bailian, sharegpt, servegen, otlp (OpenTelemetry's spans) or
	// envoy (Envoy's access log). Left out: by how it begins.
	Format TraceFormat `json:"format"`
	// The factor by which the trace is played faster than it was recorded. workload.rate sets the speed in requests per
	// second instead.
	Speedup float64 `json:"speedup" min:"0.000001" max:"1000000" default:"1"`
	// How many tokens a hash id represents. 0: the format's default, 512 for mooncake and 16 for bailian.
	BlockSize int `json:"blockSize" min:"0" max:"65536"`
	// The json_format of Envoy's access log, for envoy: a JSON object such as '{"begin": "%START_TIME%"}'. Left out:
	// fields are known by their names.
	LogFormat string `json:"logFormat"`
	// Delays each request by a random time up to this, evenly: for traces whose times are rounded down, such as
	// mooncake's to 3s.
	Spread time.Duration `json:"spread" min:"0s" max:"1h"`
	// The time in the trace at which playing begins. workload.duration is how much of the trace's time follows.
	From time.Duration `json:"from" min:"0s" max:"87600h"`
}

// Fields of a workload that a trace excludes.
var (
	sentByTrace = []string{"prompt", "maxTokens", "outputTokens", "conversations", "headers", "loraAdapters",
		"classes", "leaving", "bodyFields", "includeUsage"}
	timedByTrace = []string{"concurrency", "arrivals", "burstiness", "stages", "bursts", "diurnal"}
)

// BesideTrace returns the fields of a workload that say what is sent, and when, as a trace does.
func BesideTrace() []string {
	return slices.Concat(sentByTrace, timedByTrace, []string{"rate", "requests", "duration"})
}

// maxTraced bounds the requests of a trace.
const maxTraced = 10_000_000

// readTrace reads the workload's requests from a file.
func (s *checker) readTrace(dir string) {
	w := &s.Workload
	t := &w.Trace
	if t.File == "" {
		if s.written("workload.trace") {
			s.bad("workload.trace.file", "missing", "the path of a trace, from the scenario's own directory")
		}
		return
	}
	refuse := func(expected string, fields ...string) { s.refuse("workload", fields, "given beside trace", expected) }
	refuse("one of them: the trace says what is sent", sentByTrace...)
	path := beside(dir, t.File)
	t.Format = cmp.Or(t.Format, formatOf(path))
	switch t.Format {
	case ShareGPTTrace:
		refuse("nothing of trace.speedup, blockSize, spread and from: this format has neither times nor hash ids",
			"trace.speedup", "trace.blockSize", "trace.spread", "trace.from")
	case ServeGenTrace:
		refuse("nothing of trace.blockSize and spread: this format has no hash ids, and times of any length",
			"trace.blockSize", "trace.spread")
		refuse("one of them, or rate alone: the clients of the trace say when requests come", timedByTrace...)
		s.need("workload.duration", s.written("workload.requests") || s.written("workload.duration"),
			"how long the clients send, such as 10m, or workload.requests: this format has no end")
	default:
		refuse("one of them, or rate alone: the trace says when requests come", timedByTrace...)
		if w.Rate > 0 {
			refuse("one of them: rate, in requests per second on average, says how fast the trace is played, too",
				"trace.speedup")
		}
	}
	if len(s.problems) > 0 {
		return
	}
	o := trace.Options{Format: string(t.Format), Most: maxTraced, Speedup: t.Speedup, Block: t.BlockSize,
		Spread: t.Spread.Seconds(), LogFormat: t.LogFormat, From: t.From.Seconds(), Seed: s.Seed,
		Stream: w.Stream, Chat: w.API == ChatAPI}
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
		found, expected, _ := strings.Cut(err.Error(), "; expected ") // the form of the readers' errors
		p := s.problem("workload.trace.file", fmt.Sprintf("%s, read in the %s format: %s", t.File, t.Format, found),
			cmp.Or(expected, "a trace"))
		if k := files.KindOfFile(path); k.Is != "" && k.Trace == "" {
			p.Found, p.Expected, p.Hint = t.File+" is "+k.Is, "a trace of requests", k.Use
		}
		s.add(p)
		return
	}
	if got.Untimed {
		s.recorded, s.untimed, w.Requests = got.Requests, true, len(got.Requests)
	} else {
		s.SendAgain(got.Requests)
	}
	for _, a := range got.Assumed {
		s.assume(fmt.Sprintf("%s: %s", t.File, a))
	}
	if w.Rate > 0 && t.Format != ServeGenTrace && !got.Untimed {
		if found, expected := s.pace(w.Rate); found != "" {
			s.bad("workload.rate", found, expected)
		}
	}
}

// Timed returns the mean rate of a trace with times, in requests per second, and the factor by which it is played
// faster than it was recorded. Both are 0 without such a trace.
func (s *Scenario) Timed() (rate, speedup float64) {
	if s.recorded == nil || s.untimed {
		return 0, 0
	}
	return workload.RateOf(s.recorded), s.Workload.Trace.Speedup
}

// Paced describes how fast a trace is played if a rate sets its speed; otherwise it is empty.
func (s *Scenario) Paced() string {
	rate, speedup := s.Timed()
	if !s.paced || rate == 0 {
		return ""
	}
	return fmt.Sprintf("%s is played %.4g times as fast as it was recorded, for %.4g requests/s on average",
		s.Workload.Trace.File, speedup, rate)
}

// pace scales the times of a trace to a mean rate, in requests per second. If it cannot, it returns what it found and
// what it expected.
func (s *Scenario) pace(rate float64) (found, expected string) {
	now, _ := s.Timed()
	if now == 0 {
		return fmt.Sprintf("found %v, and all requests of the trace come at one time, so that no speed makes it a rate",
			rate), "no rate, or trace.spread to spread the requests evenly"
	}
	s.recorded = slices.Clone(s.recorded)
	for i := range s.recorded {
		s.recorded[i].At = machine.Time(float64(s.recorded[i].At) * now / rate)
	}
	s.Workload.Trace.Speedup, s.paced = s.Workload.Trace.Speedup*rate/now, true
	return "", ""
}

// formatOf returns the format of a trace by how it begins, Azure's where that is no format's beginning.
func formatOf(path string) TraceFormat {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return ServeGenTrace
	}
	return cmp.Or(TraceFormat(files.KindOfFile(path).Trace), AzureTrace)
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

// readClients reads a directory of ServeGen's clients. Each client has two files.
func (s *Scenario) readClients(dir string, o trace.Options) (*trace.Trace, error) {
	const tail = "-trace.csv"
	names, err := files.Numbered(dir, "chunk-", tail)
	if err != nil {
		return nil, err
	}
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

// Assumed returns the assumptions about what the scenario's files leave open, a sentence each, for readers of the run's
// results.
func (s *Scenario) Assumed() []string { return s.assumed }

// Part keeps a part of a trace's requests, as workload.Part says. It does nothing without a trace.
func (s *Scenario) Part(share float64, rest bool) {
	s.recorded = workload.Part(s.recorded[:min(len(s.recorded), s.Workload.Requests)], share, rest)
	s.Workload.Requests = cmp.Or(len(s.recorded), s.Workload.Requests)
}
