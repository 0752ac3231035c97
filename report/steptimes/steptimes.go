// Package steptimes computes how far the times of a run would move with another source of step times: the error that no
// number of seeds shows.
package steptimes

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/apiserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/measured"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/sources"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Summary is a source of step times, by its own name and a short one, and the error of the mean steps of the servers
// that used it, by other sources. Waiting adds to this error: if servers are nearly full, it is larger.
type Summary struct {
	Source string `json:"source"`
	Name   string `json:"name"`
	// Prompt is the mean number of uncached tokens of a prompt, and TTFT the error of their prefill. It is nil for
	// servers that prefill nothing.
	Prompt int64          `json:"prompt,omitempty"`
	TTFT   *sources.Range `json:"ttft,omitempty"`
	// Batch and Context are the mean number of sequences and of their tokens while a server computes, and TPOT the
	// error of such a decode step. It is nil for servers that make no tokens but the first.
	Batch   int64          `json:"batch,omitempty"`
	Context int64          `json:"context,omitempty"`
	TPOT    *sources.Range `json:"tpot,omitempty"`
	// Expected is the difference from measured GPUs near this model, accelerator and batch. It is nil for a source that
	// nobody held against measurements.
	Expected *measured.Error `json:"expected,omitempty"`
}

// Counts are the steps of servers, by source of their step times.
type Counts []count

type count struct {
	timer                      *latency.Timer
	prompts, cached, made, end uint64
	running, busy              float64 // seconds
}

// Add counts a server's load. It leaves out servers with the user's own constants or coefficients, since no source
// publishes these.
func (c Counts) Add(l *engine.Load) Counts {
	timer, ok := l.Timer.(*latency.Timer)
	if !ok || timer.Hardware() == nil {
		return c
	}
	at := slices.IndexFunc(c, func(x count) bool {
		return x.timer.Source() == timer.Source() && x.timer.Hardware() == timer.Hardware()
	})
	if at < 0 {
		at, c = len(c), append(c, count{timer: timer})
	}
	x := &c[at]
	x.prompts += l.Stats.PromptTokens
	x.cached += l.Stats.PrefixCacheHits
	x.made += l.Stats.GenerationTokens
	x.end += l.Stats.Finished
	x.running += l.Running.Mean(l.For) * l.For.Seconds()
	x.busy += l.Busy.Seconds()
	return c
}

// Summaries returns the summaries of servers that finished a request, and whose hardware has sources or measurements.
func (c Counts) Summaries(prefill, decode bool) (out []Summary) {
	for i := range c {
		x := &c[i]
		all := sources.Of(x.timer.Hardware())
		if x.end == 0 || x.busy == 0 {
			continue
		}
		batch := max(1, int64(math.Round(x.running/x.busy)))
		var expected *measured.Error
		if e, ok := measured.Of(x.timer.Hardware(), batch); ok && x.timer.Default() {
			expected = &e
		} else if len(all) == 0 {
			continue
		}
		mean := func(sum float64) int64 { return int64(math.Round(sum / float64(x.end))) }
		s := Summary{Source: x.timer.Source(), Expected: expected,
			Name: sources.NameOf(x.timer, all)}
		if x.timer.APICosts() == (apiserver.Costs{}) { // the source of a whole server names all of this
			s.Name += " on " + x.timer.Hardware().Accelerator.Name + ", vLLM " + x.timer.Hardware().VLLM.Version
		}
		if prefill {
			s.Prompt = max(1, mean(float64(x.prompts)-float64(min(x.cached, x.prompts))))
			if r, ok := sources.RangeOf(x.timer, all, hardware.PrefillStep(s.Prompt)); ok {
				s.TTFT = &r
			}
		}
		if decode && x.made > x.end {
			s.Batch = batch
			s.Context = max(1, mean(float64(x.prompts)+float64(x.made)/2))
			if r, ok := sources.RangeOf(x.timer, all, hardware.DecodeStep(s.Batch, s.Context)); ok {
				s.TPOT = &r
			}
		}
		out = append(out, s)
	}
	return out
}

// String returns the summary for people. It may have the names of a recording, so it is printable.
func (s *Summary) String() string {
	var words []string
	if s.TTFT != nil {
		words = append(words, fmt.Sprintf("TTFT of %s tokens %s", terminal.Thousands(int(s.Prompt)),
			rangeWords(s.TTFT)))
	}
	if s.TPOT != nil {
		words = append(words, fmt.Sprintf("TPOT of %s × %s tokens %s", terminal.Thousands(int(s.Batch)),
			terminal.Thousands(int(s.Context)), rangeWords(s.TPOT)))
	}
	text := s.Name
	if s.Expected != nil {
		text += "; " + s.Expected.String()
	} else if len(words) > 0 {
		text += "; with other sources " + strings.Join(words, ", ")
	}
	return terminal.Printable(text)
}

func rangeWords(r *sources.Range) string {
	var words []string
	for _, x := range []struct {
		off  float64
		name string
	}{{r.Low, r.Fastest}, {r.High, r.Slowest}} {
		if x.name != "" {
			words = append(words, fmt.Sprintf("%+.0f%% (%s)", 100*x.off, x.name))
		}
	}
	if len(words) == 0 {
		return "±0%"
	}
	return strings.Join(words, " to ")
}
