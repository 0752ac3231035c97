package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/record"
)

// StepDetail selects the details of an engine's steps for the record. Requests share steps, so these events belong to
// no request.
type StepDetail uint8

// The values of StepDetail.
const (
	NoSteps StepDetail = iota
	// WholeSteps records one event per step: its work, and how its time is divided between computing and the wires of a
	// tensor-parallel group.
	WholeSteps
	// StepPhases adds the beginning and the duration of each broadcast, computation, all-reduce and gather of the step.
	StepPhases
)

// EngineSteps records the steps of one engine, live or virtual.
type EngineSteps struct {
	Recorder record.Recorder
	Endpoint string
	// Timer divides the steps into phases; nil leaves the phases out.
	Timer  *latency.Timer
	Detail StepDetail
}

// Record records the steps of an engine.Stepped: one event for each step of the run, at the step's end.
func (r *EngineSteps) Record(fx *engine.Effects, f *engine.Effect) {
	if r.Detail == NoSteps || r.Recorder == nil {
		return
	}
	for k := range int(f.Count) {
		s := fx.Step(f, k)
		began, ended := f.Schedule.End(k), f.Schedule.End(k+1)
		details := record.Details{record.D("step", int(s.Index)), record.D("took_us", micros(ended-began)),
			record.D("prefill_seqs", s.PrefillSeqs),
			record.D("prefill_tokens", int(s.PrefillTokens)), record.D("decode_seqs", s.DecodeSeqs),
			record.D("context_tokens", int(s.DecodeContext+s.PrefillContext))}
		if r.Timer != nil && r.Timer.Hardware() != nil {
			details = append(details, r.apart(&s, ended-began)...)
		}
		r.Recorder.Record(record.Event{Time: ended, Hop: record.Server, Step: record.EngineStep, Endpoint: r.Endpoint,
			Details: details})
	}
}

// apart returns the parts of a step of a tensor-parallel group.
func (r *EngineSteps) apart(s *engine.Step, took machine.Time) record.Details {
	g := &r.Timer.Hardware().Group
	if g.TP < 2 {
		return nil
	}
	b := r.Timer.Split(s, took)
	details := record.Details{record.D("ranks", g.TP), record.D("nodes", g.Nodes),
		record.D("broadcast_us", micros(b.Broadcast)), record.D("compute_us", micros(b.Compute)),
		record.D("all_reduces", b.AllReduces), record.D("all_reduce_us", micros(b.AllReduce)),
		record.D("gather_us", micros(b.Gather))}
	if r.Detail != StepPhases {
		return details
	}
	phases := make([]any, 0, 2*b.AllReduces+3)
	for e := range b.Events() {
		phases = append(phases, map[string]any{"phase": e.Phase.String(), "layer": e.Layer, "start_us": micros(e.Start),
			"us": micros(e.Duration)})
	}
	return append(details, record.D("phases", phases))
}

func micros(t machine.Time) float64 { return float64(t) / 1e3 }
