package kvevents

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
)

// Decode decodes a delivery's payload, which may be in any of the formats. It returns ErrNameless if neither the
// delivery nor the payload names a pod.
func Decode(d *kvcodec.Decoder, m Delivery) (batch kv.Batch, err error) {
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
