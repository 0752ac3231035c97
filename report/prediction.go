package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// PredictionSummary reports how far predicted latencies were off.
type PredictionSummary struct {
	TTFT PredictionError `json:"ttft"`
	TPOT PredictionError `json:"tpot"`
	// Unpredicted counts requests that were scheduled without a prediction.
	Unpredicted int `json:"unpredicted"`
	// Endpoints has the errors of each endpoint, and Windows those of each stretch of the run, by the ends of requests.
	Endpoints map[string]PredictionErrors `json:"endpoints,omitempty"`
	Windows   []PredictionWindow          `json:"windows,omitempty"`
}

// PredictionErrors are the errors of TTFT and TPOT.
type PredictionErrors struct {
	TTFT PredictionError `json:"ttft"`
	TPOT PredictionError `json:"tpot"`
}

// PredictionWindow has the errors of requests that ended between two times, in seconds.
type PredictionWindow struct {
	From float64         `json:"from"`
	To   float64         `json:"to"`
	TTFT PredictionError `json:"ttft"`
	TPOT PredictionError `json:"tpot"`
}

// PredictionError is the error of predictions, as a share of the observed time.
type PredictionError struct {
	Count int `json:"count"`
	// MAPE is the mean of the absolute errors, Median is right to 2 % of itself, and Within10 is the share of
	// predictions that were off by at most a tenth.
	MAPE     float64 `json:"mape"`
	Median   float64 `json:"median"`
	Within10 float64 `json:"within10"`
}

// Errors are counted by their logarithm, from a hundredth of a percent to a
// millionfold.
const (
	perOctave  = 32
	leastError = 1e-4
	octaves    = 34
)

// errorTally counts errors of one kind.
type errorTally struct {
	n, within int
	sum       float64
	counts    [octaves * perOctave]int32
}

func (e *errorTally) add(predicted, observed float64) {
	off := math.Abs(predicted-observed) / observed
	if math.IsNaN(off) || math.IsInf(off, 0) { // a recording may hold anything
		return
	}
	e.n++
	e.sum += off
	if off <= .1 {
		e.within++
	}
	at := 0
	if off > leastError {
		at = min(int(math.Log2(off/leastError)*perOctave), len(e.counts)-1)
	}
	e.counts[at]++
}

func (e *errorTally) merge(x *errorTally) {
	e.n, e.within, e.sum = e.n+x.n, e.within+x.within, e.sum+x.sum
	for i, c := range x.counts {
		e.counts[i] += c
	}
}

func (e *errorTally) summary() PredictionError {
	if e.n == 0 {
		return PredictionError{}
	}
	out := PredictionError{Count: e.n, MAPE: round(e.sum / float64(e.n)),
		Within10: round(float64(e.within) / float64(e.n))}
	left := (e.n + 1) / 2
	for i, c := range e.counts {
		if left -= int(c); left <= 0 {
			out.Median = round(leastError * math.Exp2((float64(i)+.5)/perOctave))
			break
		}
	}
	return out
}

// errorPair has the errors of TTFT and TPOT.
type errorPair [2]errorTally

func (p *errorPair) summary() PredictionErrors {
	return PredictionErrors{p[0].summary(), p[1].summary()}
}

// maxWindows bounds the stretches of a run. Beyond it, each two become one.
const maxWindows = 24

// predictionTally counts the errors of predictions.
type predictionTally struct {
	all         errorPair
	endpoints   map[string]*errorPair
	windows     []*errorPair
	width       machine.Time
	unpredicted int
}

// record counts one checked prediction.
func (p *predictionTally) record(e *record.Event) {
	predicted := false
	for i, name := range []string{"ttft_ms", "tpot_ms"} {
		was, ok := e.Details.Get(name).(float64)
		is, predicts := e.Details.Get("predicted_" + name).(float64)
		if !ok || !predicts || !(was > 0) {
			continue
		}
		predicted = true
		p.all[i].add(is, was)
		p.endpoint(e.Endpoint)[i].add(is, was)
		p.window(e.Time)[i].add(is, was)
	}
	if !predicted {
		p.unpredicted++
	}
}

func (p *predictionTally) endpoint(name string) *errorPair {
	if p.endpoints == nil {
		p.endpoints = map[string]*errorPair{}
	}
	return bounded(p.endpoints, name, maxExplainedEndpoints, func(string) *errorPair { return new(errorPair) })
}

// maxExplainedEndpoints bounds the endpoints that errors are counted for.
const maxExplainedEndpoints = 1024

func (p *predictionTally) window(at machine.Time) *errorPair {
	p.width = cmp.Or(p.width, 5*machine.Second)
	at = max(0, at)
	for at/p.width >= maxWindows {
		half := make([]*errorPair, 0, maxWindows)
		for i, w := range p.windows {
			if i%2 == 0 {
				half = append(half, w)
				continue
			}
			for k := range w {
				half[i/2][k].merge(&w[k])
			}
		}
		p.windows, p.width = half, 2*p.width
	}
	for len(p.windows) <= int(at/p.width) {
		p.windows = append(p.windows, new(errorPair))
	}
	return p.windows[at/p.width]
}

// summary returns nil where nothing was predicted.
func (p *predictionTally) summary() *PredictionSummary {
	if p.all[0].n+p.all[1].n == 0 {
		return nil
	}
	all := p.all.summary()
	s := &PredictionSummary{TTFT: all.TTFT, TPOT: all.TPOT, Unpredicted: p.unpredicted,
		Endpoints: map[string]PredictionErrors{}}
	for name, x := range p.endpoints {
		s.Endpoints[name] = x.summary()
	}
	for i, w := range p.windows {
		if w[0].n+w[1].n > 0 {
			s.Windows = append(s.Windows,
				PredictionWindow{(p.width * machine.Time(i)).Seconds(), (p.width * machine.Time(i+1)).Seconds(),
					w[0].summary(), w[1].summary()})
		}
	}
	return s
}

func (e PredictionError) text() string {
	if e.Count == 0 {
		return "unknown"
	}
	return fmt.Sprintf("off by %.1f%% (median), %.1f%% on average, %.0f%% of %s within a tenth", 100*e.Median,
		100*e.MAPE, 100*e.Within10, terminal.Thousands(e.Count))
}

// write adds lines with the errors of TTFT and TPOT, by endpoint and over time.
func (s *PredictionSummary) write(l *lines) {
	if s == nil {
		return
	}
	l.add("predicted", "ttft "+s.TTFT.text())
	l.add("", "tpot "+s.TPOT.text())
	if s.Unpredicted > 0 {
		l.add("", terminal.Counted(s.Unpredicted, "request")+" without a prediction")
	}
	median := func(name string, ttft, tpot PredictionError) string {
		return fmt.Sprintf("%s %.1f%% %.1f%%", name, 100*ttft.Median, 100*tpot.Median)
	}
	var by, over []string
	for _, name := range slices.Sorted(maps.Keys(s.Endpoints)) {
		by = append(by, median(name, s.Endpoints[name].TTFT, s.Endpoints[name].TPOT))
	}
	for _, w := range s.Windows {
		over = append(over, median(fmt.Sprintf("%.4gs", w.To), w.TTFT, w.TPOT))
	}
	if len(by) > 1 {
		l.list("", by[:min(len(by), 16)])
	}
	if len(over) > 1 {
		l.list("", over)
	}
}
