package kvmanager

import (
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// ingest is the subscriber's handler: it turns deliveries into events and has
// them applied. The index's owner gets a message in bites, so that questions
// come in between.
type ingest struct {
	m       *Manager
	decoder kv.Decoder
	models  map[string]bool // seen in events; up to maxModels
}

const biteBlocks = 4096

func (in *ingest) handle(d kvevents.Delivery) {
	m := in.m
	if d.Lost != "" {
		m.do(func(now machine.Time) { m.ix.DropBlocks(now, d.From.Pod) })
		m.metrics.dropped.WithLabelValues("lost").Inc()
		return
	}
	began := time.Now()
	var batch kv.Batch
	var err error
	if kv.IsJSON(d.Payload) {
		batch, err = kv.DecodeJSON(d.Payload, in.decoder.Limits)
	} else {
		batch, err = in.decoder.Decode(d.Payload)
	}
	if err != nil {
		m.metrics.dropped.WithLabelValues("malformed").Inc()
		m.events.log.Warn("KV event message dropped", "pod_id", d.From.Pod, "error", err)
		return
	}
	if d.From.Pod == "" && (len(batch.Events) == 0 || batch.Events[0].Pod == "") {
		m.metrics.dropped.WithLabelValues("nameless").Inc()
		m.events.log.Warn("KV event message dropped: neither its topic nor pod_id names a pod; expected a topic like kv@<ip>:<port>@<model>")
		return
	}
	if len(batch.Events) == 0 {
		m.do(func(now machine.Time) { m.ix.Hear(now, d.From.Pod) })
		return
	}
	for i := 0; i < len(batch.Events); {
		first, blocks := i, 0
		for ; i < len(batch.Events) && (blocks == 0 || blocks+len(batch.Events[i].Hashes) <= biteBlocks); i++ {
			blocks += 1 + len(batch.Events[i].Hashes)
			in.noteModel(d.From, &batch.Events[i])
		}
		bite := batch.Events[first:i]
		if !m.do(func(now machine.Time) { in.apply(now, d.From, bite) }) {
			return
		}
	}
	took := time.Since(began)
	m.metrics.processed(batch.Events, took)
	m.events.received(began, d.From.Pod, batch.Events, took)
}

func (in *ingest) apply(now machine.Time, from kv.Topic, events []kv.Event) {
	for i := range events {
		from := from
		if from.Model == "" {
			from.Model = in.m.opts.Model
		}
		in.m.ix.Input(now, from, &events[i])
	}
}

// noteModel remembers which models there are: requests need not name the only
// one.
func (in *ingest) noteModel(from kv.Topic, e *kv.Event) {
	if e.Model != "" {
		from.Model = e.Model
	}
	if from.Model == "" || e.Kind != kv.Stored || in.models[from.Model] || len(in.models) >= maxModels {
		return
	}
	in.models[from.Model] = true
	only := ""
	if len(in.models) == 1 {
		only = from.Model
	}
	n := len(in.models)
	in.m.do(func(machine.Time) {
		s := *in.m.latest.Load()
		s.model, s.models = only, n
		in.m.latest.Store(&s)
	})
}
