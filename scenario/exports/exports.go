// Package exports writes the workload of a scenario as the configuration of another load generator: inference-perf or
// GuideLLM. Notes report what such a configuration cannot express. Begin to read at Write.
package exports

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/imports"
)

// Formats returns the names of the formats, as in package imports.
func Formats() []string { return []string{imports.InferencePerf, imports.GuideLLM} }

// Write returns a configuration that sends equivalent requests to base, such as http://127.0.0.1:8081, and notes about
// what is lost, a sentence each. Errors name the field that the format cannot express.
func Write(format string, s *scenario.Scenario, base string) (text []byte, lost []string, err error) {
	to := map[string]func(*writer) map[string]any{imports.InferencePerf: (*writer).inferencePerf,
		imports.GuideLLM: (*writer).guideLLM}[format]
	if to == nil {
		return nil, nil, fmt.Errorf("no format %q; expected one of %s", format, strings.Join(Formats(), ", "))
	}
	w := &writer{s: s, w: &s.Workload, base: base, format: format}
	w.check()
	var out map[string]any
	if w.err == nil {
		out = to(w)
	}
	if w.err != nil {
		return nil, nil, w.err
	}
	text, err = yaml.Marshal(out)
	return text, w.lost, err
}

// charactersPerToken is the length of a token without a tokenizer.
const charactersPerToken = 4

type writer struct {
	s      *scenario.Scenario
	w      *scenario.Workload
	base   string
	format string
	lost   []string
	err    error
}

func (w *writer) lose(format string, args ...any) {
	w.lost = append(w.lost, fmt.Sprintf(format, args...))
}

// fail reports a field that the format cannot express. Only the first one counts.
func (w *writer) fail(field, found, expected string) {
	w.err = cmp.Or(w.err, fmt.Errorf("workload.%s: %s, which %s cannot express; expected %s", field, found, w.format,
		expected))
}

// check refuses fields that neither format can express, and notes what both lose.
func (w *writer) check() {
	x := w.w
	switch {
	case len(x.Classes) > 0:
		w.fail("classes", "several kinds of traffic", "one kind, or a trace (azure, mooncake), which has all of them")
	case x.API != scenario.ChatAPI && x.API != scenario.CompletionsAPI:
		w.fail("api", string(x.API), "chat or completions")
	case x.Bursts.On.Quantile(1) > 0:
		w.fail("bursts", "alternating times without arrivals", "a rate or stages, or a trace (azure, mooncake)")
	case x.Diurnal != scenario.Diurnal{}:
		w.fail("diurnal", "a rate that follows the time of day", "a rate or stages, or a trace (azure, mooncake)")
	}
	for _, f := range []struct {
		given bool
		what  string
	}{
		{x.Leaving.Rate > 0 || len(x.Leaving.Requests) > 0 || x.Leaving.After.Quantile(1) > 0,
			"clients that leave (workload.leaving)"},
		{x.BodyFields != "", "workload.bodyFields"}, {x.ChunkedUpload, "workload.chunkedUpload"},
		{x.Path != "", "workload.path"}, {x.Host != "", "workload.host"},
		{x.Conversations.SessionHeader != "", "workload.conversations.sessionHeader"},
	} {
		if f.given {
			w.lose("%s: the format cannot express it", f.what)
		}
	}
	if open := x.Rate > 0 || len(x.Stages) > 0; open &&
		(x.Arrivals == scenario.GammaArrivals || x.Arrivals == scenario.WeibullArrivals) {
		w.lose("arrivals are poisson and not %s", x.Arrivals)
	}
	if x.Prompt.Text != "" {
		w.lose("prompts are words of the same length, and not workload.prompt.text")
	}
	if w.s.Seed != 0 && x.Trace.File == "" {
		w.lose("the tool draws the requests, and not the scenario's seed")
	}
}

// length is a distribution of tokens, requests or seconds.
type length struct {
	family                     dist.Family
	mean, deviation, low, high float64
}

// of returns a distribution in a unit.
func of(d *dist.Dist, unit float64) length {
	mean, deviation := d.Moments()
	return length{d.Family(), mean / unit, deviation / unit, math.Max(0, float64(d.Quantile(0))/unit),
		float64(d.Quantile(1)) / unit}
}

// prompt returns the number of tokens of a prompt after its shared beginning.
func (w *writer) prompt() length {
	p := &w.w.Prompt
	switch {
	case p.Tokens.Quantile(1) > 0:
		return of(&p.Tokens, 1)
	case p.Characters.Quantile(1) > 0:
		return of(&p.Characters, charactersPerToken)
	case p.Text != "":
		d := dist.Fixed(1)
		l := of(&d, 1)
		l.mean = math.Ceil(float64(len(p.Text)) / charactersPerToken)
		l.low, l.high = l.mean, l.mean
		return l
	}
	low, high := float64(p.Bytes.Low)/charactersPerToken, float64(p.Bytes.High)/charactersPerToken
	return length{dist.FamilyUniform, (low + high) / 2, (high - low) / math.Sqrt(12), low, high}
}

func (w *writer) answer() length {
	if w.w.OutputTokens.Quantile(1) > 0 {
		return of(&w.w.OutputTokens, 1)
	}
	if most := float64(w.w.MaxTokens); most > 0 {
		return length{dist.FamilyConstant, most, 0, most, most}
	}
	own := &w.s.Pools[0].ModelServer.OutputTokens
	if own.Quantile(1) == 0 { // external model servers
		w.fail("outputTokens", "missing, so that the model server chooses the length of an answer",
			"outputTokens or maxTokens")
	}
	w.lose("answers have the length of the simulated model servers' answers, since the workload asks for none")
	return of(own, 1)
}

// beginning returns the number of shared beginnings, and their tokens.
func (w *writer) beginning() (groups int, tokens length) {
	return w.w.Prompt.Shared.Groups, of(&w.w.Prompt.Shared.Characters, charactersPerToken)
}

func (w *writer) model() string { return cmp.Or(w.w.Model, w.s.Pools[0].Model) }

// headers returns the workload's headers.
func (w *writer) headers() map[string]string {
	headers := map[string]string{}
	for _, h := range w.w.Headers {
		headers[h.Name] = h.Value
		if h.Share > 0 && h.Share < 1 {
			w.lose("all requests have the header %s, and not a part of them", h.Name)
		}
	}
	return headers
}

// objectives returns the objectives that are set, in a unit.
func (w *writer) objectives(of map[string]time.Duration, unit time.Duration) map[string]any {
	out := map[string]any{}
	for name, most := range of {
		if most > 0 {
			out[name] = number(most.Seconds() / unit.Seconds())
		}
	}
	return out
}

// seconds returns a time in whole seconds, at least one.
func (w *writer) seconds(field string, d time.Duration) int {
	up := max(1, int(math.Ceil(d.Seconds())))
	if d > 0 && time.Duration(up)*time.Second != d {
		w.lose("%s is %d s and not %s: the format has whole seconds", field, up, d)
	}
	return up
}

// stages are times with a rate above zero, and the pause between them.
type stages struct {
	rates     []float64
	durations []time.Duration
	pause     time.Duration
}

// open returns the stages of an open loop.
func (w *writer) open() (out stages) {
	x := w.w
	if len(x.Stages) == 0 {
		d, arrivals := x.Duration, x.Rate*x.Duration.Seconds()
		// A workload that only a duration ends has about as many requests as arrive in it.
		if float64(x.Requests) < arrivals-4*math.Sqrt(arrivals) || d == 0 {
			d = time.Duration(math.Ceil(float64(x.Requests) / x.Rate * 1e9))
		}
		return stages{rates: []float64{x.Rate}, durations: []time.Duration{d}}
	}
	before, pause, begun, between := x.Rate, time.Duration(0), false, []time.Duration{}
	for i, g := range x.Stages {
		rate := g.Rate
		if g.Ramp {
			rate = (before + g.Rate) / 2
			w.lose("stages[%d] has its mean rate, %g, all of its time, and no ramp", i, rate)
		}
		if before = g.Rate; rate == 0 {
			pause += g.Duration
			continue
		}
		if begun {
			between = append(between, pause)
		}
		begun, pause = true, 0
		out.rates, out.durations = append(out.rates, rate), append(out.durations, g.Duration)
	}
	for _, p := range between {
		if p != between[0] {
			w.fail("stages", "pauses of different lengths", "pauses of one length between all stages, or none")
		}
		out.pause = p
	}
	return out
}

func number(v float64) any {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return int64(v)
	}
	return math.Round(v*1e6) / 1e6
}

func whole(v float64) int64 { return int64(math.Max(1, math.Round(v))) }
