package lifecycle

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
)

// StepDetail is how much of an engine's steps goes into the record. Requests
// share steps, so these events belong to none of them.
type StepDetail uint8

// The details.
const (
	NoSteps StepDetail = iota
	// WholeSteps is one event per step: what it computed, and how its time is
	// shared between computing and the wires of a tensor-parallel group.
	WholeSteps
	// StepPhases adds when each broadcast, computation, all-reduce and gather of
	// the step began and how long it took.
	StepPhases
)

// EngineSteps reports the steps of one engine, live or virtual.
type EngineSteps struct {
	Recorder flow.Recorder
	Endpoint string
	// Timer takes the steps apart; nil leaves that out.
	Timer  *latency.Timer
	Detail StepDetail
}

// Record reports the steps of an engine.Stepped. A run of steps is one event
// each, at the step's end.
func (r *EngineSteps) Record(fx *engine.Effects, f *engine.Effect) {
	if r.Detail == NoSteps || r.Recorder == nil {
		return
	}
	for k := range int(f.Count) {
		s := fx.Step(f, k)
		began, ended := f.Schedule.End(k), f.Schedule.End(k+1)
		details := flow.Details{flow.D("step", int(s.Index)), flow.D("took_us", micros(ended-began)),
			flow.D("prefill_seqs", s.PrefillSeqs),
			flow.D("prefill_tokens", int(s.PrefillTokens)), flow.D("decode_seqs", s.DecodeSeqs),
			flow.D("context_tokens", int(s.DecodeContext+s.PrefillContext))}
		if r.Timer != nil && r.Timer.Hardware() != nil {
			details = append(details, r.apart(&s, ended-began)...)
		}
		r.Recorder.Record(flow.Event{Time: ended, Hop: flow.Server, Step: flow.EngineStep, Endpoint: r.Endpoint,
			Details: details})
	}
}

// apart tells what a step of a tensor-parallel group consists of.
func (r *EngineSteps) apart(s *engine.Step, took machine.Time) flow.Details {
	g := &r.Timer.Hardware().Group
	if g.TP < 2 {
		return nil
	}
	b := r.Timer.Split(s, took)
	details := flow.Details{flow.D("ranks", g.TP), flow.D("nodes", g.Nodes),
		flow.D("broadcast_us", micros(b.Broadcast)), flow.D("compute_us", micros(b.Compute)),
		flow.D("all_reduces", b.AllReduces), flow.D("all_reduce_us", micros(b.AllReduce)),
		flow.D("gather_us", micros(b.Gather))}
	if r.Detail != StepPhases {
		return details
	}
	phases := make([]any, 0, 2*b.AllReduces+3)
	for e := range b.Events() {
		phases = append(phases, map[string]any{"phase": e.Phase.String(), "layer": e.Layer, "start_us": micros(e.Start),
			"us": micros(e.Duration)})
	}
	return append(details, flow.D("phases", phases))
}

func micros(t machine.Time) float64 { return float64(t) / 1e3 }
