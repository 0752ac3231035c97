package latency

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/apiserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Kind is the method by which step times are computed.
type Kind string

// The values of Kind. Auto is the built-in table of the hardware if there is one, else its roofline.
const (
	KindAuto         Kind = ""
	KindVLLM         Kind = "vllm"
	KindConstant     Kind = "constant"
	KindPerToken     Kind = "per-token"
	KindTable        Kind = "table"
	KindRoofline     Kind = "roofline"
	KindDocument     Kind = "document-003"
	KindInferenceSim Kind = "inference-sim"
)

// Config holds the parameters of a Timer.
type Config struct {
	Kind     Kind
	Constant Constant // for KindConstant
	PerToken PerToken // for KindPerToken
	Points   []Point  // for KindTable; nil is the built-in table of Hardware
	// Hardware is required by table, roofline and auto. With other kinds it is optional, and New checks their figures
	// against it.
	Hardware *hardware.Hardware
	// Calibration, for KindVLLM, is the serving stack's; nil is the built-in one.
	Calibration *CalibrationFile

	Jitter Jitter
	// Seed and Component key the draws of the jitter.
	Seed      uint64
	Component string
}

// Jitter makes a step longer or shorter than the timer's figure. It excludes macro-steps, so it is off by default.
type Jitter struct {
	// Factor is a factor, in Millionths; the zero value is off.
	Factor dist.Dist
	// Extra is an additional time, in Nanoseconds, for pauses of the host. The zero value is off.
	Extra dist.Dist
}

func (j *Jitter) off() bool {
	one := j.Factor.IsConstant() && j.Factor.Quantile(0) == 1e6
	return (one || isZero(j.Factor)) && isZero(j.Extra)
}

// isZero reports whether every draw gives 0.
func isZero(d dist.Dist) bool { return d.IsConstant() && d.Quantile(0) == 0 }

// Timer is a checked engine.StepTimer that also reports the source of its figures and the parts of a step. It is safe
// for concurrent use.
type Timer struct {
	inner    engine.StepTimer
	hardware *hardware.Hardware
	api      apiserver.Costs
	source   string
	jitter   *Jitter
	doubt    string
	auto     bool
	seed     uint64
	name     string
}

// New returns a timer, or an error that names the figure that is missing, malformed or faster than the hardware.
func New(c Config) (*Timer, error) {
	t := &Timer{hardware: c.Hardware, seed: c.Seed, name: c.Component, auto: c.Kind == KindVLLM && c.Calibration == nil}
	if c.Hardware != nil {
		if err := c.Hardware.Check(); err != nil {
			return nil, fmt.Errorf("latency: %w", err)
		}
	} else if c.Kind == KindAuto || c.Kind == KindTable && c.Points == nil || c.Kind == KindRoofline ||
		c.Kind == KindInferenceSim || c.Kind == KindVLLM {
		return nil, fmt.Errorf("latency: kind %q needs a model and an accelerator; name them, or use kind %s or %s",
			c.Kind, KindConstant, KindPerToken)
	}
	if u := c.Jitter.Factor; u.Unit() != dist.Millionths && !isZero(u) {
		return nil, fmt.Errorf("latency: jitter factor %s has the wrong unit; expected a factor such as ±10%%", u)
	}
	if !c.Jitter.off() {
		t.jitter = &c.Jitter
	}
	if err := t.choose(c); err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	return t, nil
}

func (t *Timer) choose(c Config) (err error) {
	h := c.Hardware
	switch c.Kind {
	case KindConstant:
		if c.Constant.TimeToFirstToken < 0 || c.Constant.InterTokenLatency < 0 ||
			max(c.Constant.TimeToFirstToken, c.Constant.InterTokenLatency) > 3600*machine.Second {
			return fmt.Errorf("constant times must be between 0 and 1h, got %s and %s",
				c.Constant.TimeToFirstToken.Duration(), c.Constant.InterTokenLatency.Duration())
		}
		t.inner, t.source = c.Constant, "constant"
		if h != nil {
			return h.RefuseFaster("the constant inter-token latency: decode of 1 sequence of 1 token",
				hardware.DecodeStep(1, 1), int64(c.Constant.InterTokenLatency))
		}
		return nil
	case KindPerToken:
		t.inner, t.source = c.PerToken, "per-token coefficients"
		return c.PerToken.check(h)
	case KindVLLM:
		t.source = fmt.Sprintf("vLLM %s with %s on %s, %s", h.VLLM.Version, h.Model.Name, h.Accelerator.Name, &h.Group)
		calibration := c.Calibration
		if calibration == nil {
			calibration = builtinCalibration
		} else {
			t.source += calibration.String()
		}
		t.api = calibration.Parameters.APICosts()
		t.inner, err = NewServing(h, &calibration.Parameters)
		return err
	case KindRoofline:
		return t.roofline()
	case KindInferenceSim:
		t.source = fmt.Sprintf("inference-sim's roofline of %s on %s, TP %d", h.Model.Name, h.Accelerator.Name,
			h.Group.TP)
		t.inner, err = NewInferenceSim(h)
		return err
	case KindDocument:
		t.inner, t.source, t.doubt = Document003{}, "document 003", Document003{}.doubt(h)
		return nil
	case KindTable, KindAuto:
		points, source := c.Points, "table given"
		if points == nil {
			var ok bool
			if points, source, ok = builtinPoints(h); !ok {
				if c.Kind == KindAuto {
					return t.roofline()
				}
				return fmt.Errorf("there is no built-in table for %s on %s with TP %d; give points, or use kind %s",
					h.Model.Name, h.Accelerator.Name, h.Group.TP, KindRoofline)
			}
		}
		table, err := NewTable(points, h)
		if err != nil {
			return err
		}
		if h != nil {
			table.extra = betweenNodes(h)
		}
		t.inner, t.source = table, source
		return nil
	}
	return fmt.Errorf("kind %q is unknown; expected %s, %s, %s, %s, %s, %s or nothing", c.Kind, KindConstant,
		KindPerToken, KindTable, KindRoofline, KindInferenceSim, KindDocument)
}

func (t *Timer) roofline() error {
	r, err := NewRoofline(*t.hardware)
	t.inner = r
	t.source = fmt.Sprintf("roofline of %s on %s, %s", t.hardware.Model.Name, t.hardware.Accelerator.Name,
		t.hardware.Group.String())
	return err
}

// For returns the timer of one engine among several: with the same figures, and with jitter of its own.
func (t *Timer) For(component string) *Timer {
	if t.jitter == nil {
		return t
	}
	own := *t
	own.name += " " + component
	return &own
}

// Hardware returns the model and accelerator that the timer computes from or was checked against; nil if none was
// named.
func (t *Timer) Hardware() *hardware.Hardware { return t.hardware }

// Source returns the source of the figures, for reports.
func (t *Timer) Source() string { return t.source }

// Default reports whether the figures are those that windtunnel chooses for the hardware, whose expected error
// package measured knows.
func (t *Timer) Default() bool { return t.auto }

// APICosts returns the times of the API server; zero except with KindVLLM.
func (t *Timer) APICosts() apiserver.Costs { return t.api }

// Doubt returns the reason not to trust the figures, or "".
func (t *Timer) Doubt() string { return t.doubt }

// StepTime implements engine.StepTimer.
func (t *Timer) StepTime(s *engine.Step) engine.Fixed {
	ns := t.inner.StepTime(s)
	if t.jitter == nil {
		return ns
	}
	draw := machine.NewDraw(t.seed, t.name, "step-jitter", s.Index)
	if !isZero(t.jitter.Factor) {
		ns = engine.Fixed(machine.MulDiv(int64(ns), t.jitter.Factor.Sample(&draw), 1e6))
	}
	return max(ns+engine.Fixed(t.jitter.Extra.Sample(&draw))<<engine.FixedShift, oneNanosecond)
}

// DecodeLine implements engine.StepTimer; with jitter there is no line.
func (t *Timer) DecodeLine(batch int, context int64) (engine.Line, bool) {
	if t.jitter != nil {
		return engine.Line{}, false
	}
	return t.inner.DecodeLine(batch, context)
}
