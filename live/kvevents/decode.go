package kvevents

import (
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
)

// Receive decodes a delivery and passes the report with its events, or with the loss, to apply. It returns the report
// with the times. apply returns false if nothing took effect.
func Receive(decoder *kvcodec.Decoder, d Delivery, log *slog.Logger, apply func(r *Report) bool) Report {
	began := time.Now()
	r := Report{From: d.From, Seq: d.Seq, Lost: d.Lost}
	var batch kv.Batch
	if d.Lost == "" {
		batch, r.Err = decode(decoder, d)
		r.Events = batch.Events
	}
	applied := r.Err == nil && apply(&r)
	now := time.Now()
	if r.Took = now.Sub(began); applied && batch.At > 0 {
		r.Lag = max(0, now.Sub(time.UnixMicro(int64(batch.At*1e6))))
	}
	if r.Err != nil {
		log.Warn("KV event message dropped", "pod_id", d.From.Pod, "error", r.Err)
	}
	return r
}

// Portions calls f with a message's events in portions of about so many blocks, until f returns false, so that readers
// of the index need not wait for a whole message. A message without events is one empty portion.
func Portions(events []kv.Event, most int, f func([]kv.Event) bool) bool {
	for first := true; first || len(events) > 0; first = false {
		n, blocks := 0, 0
		for n < len(events) && (n == 0 || blocks+len(events[n].Hashes) <= most) {
			blocks += 1 + len(events[n].Hashes)
			n++
		}
		if !f(events[:n]) {
			return false
		}
		events = events[n:]
	}
	return true
}

// decode decodes a delivery's payload, which may be in any of the formats. It returns ErrNameless if neither the
// delivery nor the payload names a pod.
func decode(d *kvcodec.Decoder, m Delivery) (batch kv.Batch, err error) {
	if kvcodec.IsJSON(m.Payload) {
		batch, err = kvcodec.DecodeJSON(m.Payload, d.Limits)
	} else {
		batch, err = d.Decode(m.Payload)
	}
	if err == nil && m.From.Pod == "" && (len(batch.Events) == 0 || batch.Events[0].Pod == "") {
		err = ErrNameless
	}
	return batch, err
}
