package up

import (
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// record records an event that belongs to no request.
func (u *Up) record(e record.Event) {
	if u.o.Recorder != nil {
		e.Time = machine.FromDuration(time.Since(u.origin))
		u.o.Recorder.Record(e)
	}
}

// lives records that a model server comes or goes, once for each of its addresses.
func (u *Up) lives(step record.Step, p *pod) {
	if p.model == "" {
		return
	}
	for _, at := range p.at {
		u.record(record.Event{Hop: record.Server, Step: step, Endpoint: at,
			Details: record.Details{record.D("name", p.Name()), record.D("deployment", p.Workload.Name)}})
	}
}

// edited records the outcome of an edit.
func (u *Up) edited(file string, err error) {
	e := record.Event{Hop: record.Envoy, Step: record.ConfigApplied, Details: record.Details{record.D("file", file)}}
	if err != nil {
		e.Step, e.Details = record.ConfigRefused, append(e.Details, record.D("reason", err.Error()))
	}
	u.record(e)
}
