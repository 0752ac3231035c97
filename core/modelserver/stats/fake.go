package stats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
)

// FakeMetrics replace the engine's metrics in /metrics, in the format of llm-d-inference-sim's fake-metrics. They test
// the reaction of an endpoint picker or an autoscaler to metrics without the load. Fields without a fake value keep
// their real one.
type FakeMetrics struct {
	Running  *Wave     `json:"running-requests"`
	Waiting  *Wave     `json:"waiting-requests"`
	KVUsage  *Wave     `json:"kv-cache-usage"`
	Adapters []FakeUse `json:"loras"`

	// Counts per bucket of vLLM's histograms of times. The last bucket is above all bounds. The list may leave out
	// trailing buckets.
	TTFT        []float64 `json:"ttft-buckets-values"`
	TPOT        []float64 `json:"tpot-buckets-values"`
	RequestTPOT []float64 `json:"request-tpot-buckets-values"`
	E2E         []float64 `json:"e2erl-buckets-values"`
	Queue       []float64 `json:"queue-time-buckets-values"`
	Inference   []float64 `json:"inf-time-buckets-values"`
	Prefill     []float64 `json:"prefill-time-buckets-values"`
	Decode      []float64 `json:"decode-time-buckets-values"`

	// Lengths in tokens, each observed once by the histograms.
	PromptTokens     []float64 `json:"request-prompt-tokens"`
	GenerationTokens []float64 `json:"request-generation-tokens"`
	MaxGeneration    []float64 `json:"request-max-generation-tokens"`
	ParamMaxTokens   []float64 `json:"request-params-max-tokens"`

	// Success counts requests by their finish reason.
	Success map[string]float64 `json:"request-success-total"`
	// TotalPrompt and TotalGeneration are the counters of tokens. By default they are the sums of PromptTokens and of
	// GenerationTokens.
	TotalPrompt     *float64 `json:"total-prompt-tokens"`
	TotalGeneration *float64 `json:"total-generation-tokens"`
	PrefixHits      *float64 `json:"prefix-cache-hits"`
	PrefixQueries   *float64 `json:"prefix-cache-queries"`
}

// FakeUse is one series of vllm:lora_requests_info: adapters' names, separated by commas, and the start time in Unix
// seconds (0: now).
type FakeUse struct {
	Running   string  `json:"running"`
	Waiting   string  `json:"waiting"`
	Timestamp float64 `json:"timestamp"`
}

// UnmarshalJSON parses an object, or a string that contains one, as in lists of flags.
func (u *FakeUse) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = []byte(text)
	}
	type plain FakeUse
	return json.Unmarshal(raw, (*plain)(u))
}

const (
	maxFakeValues = 65_536 // of one list
	maxFakeUses   = 10_000
	maxFakeCount  = 1e12
)

// ParseFakeMetrics parses fake metrics; null is none.
func ParseFakeMetrics(raw []byte) (*FakeMetrics, error) { return (*FakeMetrics)(nil).With(raw) }

// Idle pretends that a server has no requests.
var Idle = &FakeMetrics{Running: new(Wave), Waiting: new(Wave), KVUsage: new(Wave)}

// With returns the metrics with the fields of a JSON object replaced. Fields that are absent from the object or null
// stay. An empty list restores a field's real value, and null in place of the object restores all.
func (f *FakeMetrics) With(raw []byte) (*FakeMetrics, error) {
	if strings.TrimSpace(string(raw)) == "null" {
		return nil, nil
	}
	fresh := new(FakeMetrics)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(fresh); err != nil {
		return nil, fmt.Errorf("fake-metrics: %w", err)
	}
	if f != nil {
		fresh.inherit(f)
	}
	return fresh, fresh.check()
}

// inherit copies the fields that are not set from old.
func (f *FakeMetrics) inherit(old *FakeMetrics) {
	for to, from := range map[**Wave]*Wave{&f.Running: old.Running, &f.Waiting: old.Waiting, &f.KVUsage: old.KVUsage} {
		*to = cmp.Or(*to, from)
	}
	was := old.lists()
	for i, l := range f.lists() {
		if *l.values == nil {
			*l.values = *was[i].values
		}
	}
	for to, from := range map[**float64]*float64{&f.TotalPrompt: old.TotalPrompt,
		&f.TotalGeneration: old.TotalGeneration,
		&f.PrefixHits:      old.PrefixHits, &f.PrefixQueries: old.PrefixQueries} {
		*to = cmp.Or(*to, from)
	}
	if f.Adapters == nil {
		f.Adapters = old.Adapters
	}
	if f.Success == nil {
		f.Success = maps.Clone(old.Success)
	}
}

// fakeList is one list field, with the histogram that it replaces.
type fakeList struct {
	name   string
	values *[]float64
	counts bool // counts per bucket, not observed values
	most   int  // limit on the number of values
	of     func(*Stats) *histogram
}

func (f *FakeMetrics) lists() []fakeList {
	per := func(name string, v *[]float64, bounds []float64, of func(*Stats) *histogram) fakeList {
		return fakeList{name, v, true, len(bounds) + 1, of}
	}
	seen := func(name string, v *[]float64, of func(*Stats) *histogram) fakeList {
		return fakeList{name, v, false, maxFakeValues, of}
	}
	return []fakeList{
		per("ttft-buckets-values", &f.TTFT, ttftBounds, func(s *Stats) *histogram { return &s.ttft }),
		per("tpot-buckets-values", &f.TPOT, itlBounds, func(s *Stats) *histogram { return &s.itl }),
		per("request-tpot-buckets-values", &f.RequestTPOT, itlBounds, func(s *Stats) *histogram { return &s.tpot }),
		per("e2erl-buckets-values", &f.E2E, e2eBounds, func(s *Stats) *histogram { return &s.e2e }),
		per("queue-time-buckets-values", &f.Queue, e2eBounds, func(s *Stats) *histogram { return &s.queue }),
		per("inf-time-buckets-values", &f.Inference, e2eBounds, func(s *Stats) *histogram { return &s.inference }),
		per("prefill-time-buckets-values", &f.Prefill, e2eBounds, func(s *Stats) *histogram { return &s.prefill }),
		per("decode-time-buckets-values", &f.Decode, e2eBounds, func(s *Stats) *histogram { return &s.decode }),
		seen("request-prompt-tokens", &f.PromptTokens, func(s *Stats) *histogram { return &s.promptTokens }),
		seen("request-generation-tokens", &f.GenerationTokens,
			func(s *Stats) *histogram { return &s.generationTokens }),
		seen("request-max-generation-tokens", &f.MaxGeneration, func(s *Stats) *histogram { return &s.maxGeneration }),
		seen("request-params-max-tokens", &f.ParamMaxTokens, func(s *Stats) *histogram { return &s.paramMaxTokens }),
	}
}

func (f *FakeMetrics) check() error {
	if f.KVUsage != nil && max(f.KVUsage.from, f.KVUsage.to) > 1 {
		return errors.New("fake-metrics: kv-cache-usage: expected values from 0 to 1")
	}
	number := func(name string, v float64) error {
		if !(v >= 0 && v <= maxFakeCount) {
			return fmt.Errorf("fake-metrics: %s: expected numbers from 0 to %g, got %v", name, float64(maxFakeCount), v)
		}
		return nil
	}
	for _, l := range f.lists() {
		if len(*l.values) > l.most {
			return fmt.Errorf("fake-metrics: %s: expected at most %d values, got %d", l.name, l.most, len(*l.values))
		}
		for _, v := range *l.values {
			if err := number(l.name, v); err != nil {
				return err
			}
		}
	}
	for name, v := range map[string]*float64{"total-prompt-tokens": f.TotalPrompt,
		"total-generation-tokens": f.TotalGeneration,
		"prefix-cache-hits":       f.PrefixHits, "prefix-cache-queries": f.PrefixQueries} {
		if v != nil {
			if err := number(name, *v); err != nil {
				return err
			}
		}
	}
	for reason, v := range f.Success {
		if err := number("request-success-total: "+reason, v); err != nil {
			return err
		}
	}
	if len(f.Adapters) > maxFakeUses {
		return fmt.Errorf("fake-metrics: loras: expected at most %d, got %d", maxFakeUses, len(f.Adapters))
	}
	return nil
}

// Wave is a number that is constant or changes with time: a plain number, or "oscillate:start:end:period", "ramp:…"
// (stays at its end), "rampreset:…" (starts again) or "squarewave:…".
type Wave struct {
	kind     string
	from, to float64
	period   time.Duration
}

// UnmarshalJSON parses a number or a function.
func (w *Wave) UnmarshalJSON(raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	number := func(f float64) error {
		if !(f >= 0 && f <= 1e9) {
			return fmt.Errorf("expected a number from 0 to 1e9, got %v", f)
		}
		return nil
	}
	switch v := v.(type) {
	case float64:
		*w = Wave{from: v, to: v}
		return number(v)
	case string:
		parts := strings.Split(v, ":")
		if len(parts) != 4 {
			return fmt.Errorf("expected a number or function:start:end:period, got %q", v)
		}
		switch parts[0] {
		case "oscillate", "ramp", "rampreset", "squarewave":
		default:
			return fmt.Errorf("unknown function %q, expected oscillate, ramp, rampreset or squarewave", parts[0])
		}
		from, err1 := strconv.ParseFloat(parts[1], 64)
		to, err2 := strconv.ParseFloat(parts[2], 64)
		period, err3 := time.ParseDuration(parts[3])
		if err := errors.Join(err1, err2, err3, number(from), number(to)); err != nil {
			return err
		}
		if period <= 0 {
			return fmt.Errorf("expected a period above 0, got %v", period)
		}
		*w = Wave{parts[0], from, to, period}
		return nil
	}
	return fmt.Errorf("expected a number or a function, got %s", raw)
}

// at returns the value at a time after the beginning.
func (w *Wave) at(since time.Duration) float64 {
	if w.kind == "" {
		return w.from
	}
	turns, part := math.Modf(float64(since) / float64(w.period))
	switch w.kind {
	case "oscillate":
		return w.from + (w.to-w.from)*(1-math.Cos(2*math.Pi*part))/2
	case "squarewave":
		if part < 0.5 {
			return w.from
		}
		return w.to
	case "ramp":
		if turns >= 1 {
			return w.to
		}
	}
	return w.from + (w.to-w.from)*part
}

// Pretend puts the fake metrics into a look that owns its counts (Snapshot). since is the time that the server has run.
func (f *FakeMetrics) Pretend(x *Look, since time.Duration) {
	if f.Running != nil {
		x.Engine.Running = int(math.Round(f.Running.at(since)))
	}
	if f.Waiting != nil {
		x.Engine.Waiting = int(math.Round(f.Waiting.at(since)))
		x.Engine.Pulling = 0
	}
	if f.KVUsage != nil {
		usage := f.KVUsage.at(since)
		x.usage = &usage
	}
	x.pretended = f.Adapters
	for _, l := range f.lists() {
		if len(*l.values) > 0 {
			l.replace(l.of(x.Stats))
		}
	}
	sum := func(total *float64, values []float64, to *uint64) {
		switch {
		case total != nil:
			*to = uint64(*total)
		case len(values) > 0:
			*to = 0
			for _, v := range values {
				*to += uint64(v)
			}
		}
	}
	sum(f.TotalPrompt, f.PromptTokens, &x.Engine.PromptTokens)
	sum(f.TotalGeneration, f.GenerationTokens, &x.Engine.GenerationTokens)
	sum(f.PrefixHits, nil, &x.CachedTokens)
	sum(f.PrefixQueries, nil, &x.QueriedTokens)
	if f.Success != nil {
		for i, name := range finishedNames {
			x.Success[i] = uint64(f.Success[name])
		}
	}
}

// replace fills a histogram with fake metrics. A bucket's count stands for values in the middle of the bucket.
func (l *fakeList) replace(h *histogram) {
	*h = newHistogram(h.bounds)
	for i, v := range *l.values {
		if !l.counts {
			h.observe(v)
			continue
		}
		low, high := 0.0, 0.0
		if i > 0 {
			low = h.bounds[i-1]
		}
		if high = low; i < len(h.bounds) {
			high = h.bounds[i]
		}
		h.counts[i] += uint64(v)
		h.n += uint64(v)
		h.sum += math.Floor(v) * (low + high) / 2
	}
}
