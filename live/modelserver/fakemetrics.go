package modelserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// FakeMetrics replace what the engine says in /metrics, in the form of
// llm-d-inference-sim's fake-metrics: to see what an endpoint picker makes of
// figures without making the load. Fields that are not given stay true.
type FakeMetrics struct {
	Running  *Wave `json:"running-requests"`
	Waiting  *Wave `json:"waiting-requests"`
	KVUsage  *Wave `json:"kv-cache-usage"`
	Adapters []struct {
		Running   string  `json:"running"`
		Waiting   string  `json:"waiting"`
		Timestamp float64 `json:"timestamp"`
	} `json:"loras"`
}

// ParseFakeMetrics reads them; null is none.
func ParseFakeMetrics(raw []byte) (*FakeMetrics, error) {
	if strings.TrimSpace(string(raw)) == "null" {
		return nil, nil
	}
	f := new(FakeMetrics)
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, fmt.Errorf("fake-metrics: %w", err)
	}
	if f.KVUsage != nil && max(f.KVUsage.from, f.KVUsage.to) > 1 {
		return nil, errors.New("fake-metrics: kv-cache-usage: expected values from 0 to 1")
	}
	return f, nil
}

// Wave is a number that stays or changes with time: a plain number, or
// "oscillate:start:end:period", "ramp:…" (stays at its end), "rampreset:…"
// (begins again) or "squarewave:…".
type Wave struct {
	kind     string
	from, to float64
	period   time.Duration
}

// UnmarshalJSON reads a number or a function.
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

// at is the value so long after the beginning.
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

// fakeRefresh is how long a page with changing figures is kept.
const fakeRefresh = 100 * machine.Millisecond

// SetFakeMetrics replaces figures in /metrics from now on; nil ends that.
func (s *Server) SetFakeMetrics(f *FakeMetrics) { s.fake.Store(f) }

// pretend puts the false figures into a scrape.
func (f *FakeMetrics) pretend(x *scrape, since time.Duration) {
	if f.Running != nil {
		x.engine.Running = int(math.Round(f.Running.at(since)))
	}
	if f.Waiting != nil {
		x.engine.Waiting = int(math.Round(f.Waiting.at(since)))
	}
	if f.KVUsage != nil {
		usage := f.KVUsage.at(since)
		x.usage = &usage
	}
	if len(f.Adapters) > 0 {
		a := f.Adapters[0]
		x.adapters = &adapterUse{running: a.Running, waiting: a.Waiting}
	}
}
