package up

import (
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
)

// record records what is no request's.
func (u *Up) record(e flow.Event) {
	if u.o.Recorder != nil {
		e.Time = machine.FromDuration(time.Since(u.origin))
		u.o.Recorder.Record(e)
	}
}

// lives records that a model server comes or goes, by every address that it has.
func (u *Up) lives(step flow.Step, p *pod) {
	if p.model == "" {
		return
	}
	for _, at := range p.at {
		u.record(flow.Event{Hop: flow.Server, Step: step, Endpoint: at,
			Details: flow.Details{flow.D("name", p.name), flow.D("deployment", p.workload.Name)}})
	}
}

// edited records what became of an edit.
func (u *Up) edited(file string, err error) {
	e := flow.Event{Hop: flow.Envoy, Step: flow.ConfigApplied, Details: flow.Details{flow.D("file", file)}}
	if err != nil {
		e.Step, e.Details = flow.ConfigRefused, append(e.Details, flow.D("reason", err.Error()))
	}
	u.record(e)
}
