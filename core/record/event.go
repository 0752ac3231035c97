// Package record defines the one record of what happened to a request.
//
// Every hop (client, Envoy, EPP, sidecar, model server) reports typed events: request, attempt, hop, step, time, and
// the details that a person wants to see. The terminal view, the NDJSON recording and its replay, golden tests, the
// comparison of a live run with a virtual one and every trace export read this one stream. Nothing else is recorded
// anywhere.
//
// This package alone defines the names of hops and steps. docs/flow.md lists each with its fields; a test keeps the two
// equal. Begin with Event.
package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Event is one thing that happened to one request.
type Event struct {
	// Time since the run began; in JSON, a number of seconds.
	Time machine.Time
	// Request is the request id that every hop sees in x-request-id. It is empty in an event that concerns no request
	// (EngineStep).
	Request string
	// Attempt counts the tries of one request from 1. It is 0 where a hop cannot know it: the client sees one request,
	// however often Envoy retries.
	Attempt int
	Hop     Hop
	Step    Step
	// Endpoint is the model server concerned, as host:port or as its name;
	// empty before one is chosen.
	Endpoint string
	Details  Details
}

// Details are an event's named values in the order in which a person reads
// them. They marshal to one JSON object.
type Details []Detail

// Detail is one named value: a string, bool, int, float64, or a slice or map of those.
type Detail struct {
	Key   string
	Value any
}

// D builds a detail.
func D(key string, value any) Detail { return Detail{key, value} }

// Get returns the value under key, or nil.
func (d Details) Get(key string) any {
	for _, f := range d {
		if f.Key == key {
			return f.Value
		}
	}
	return nil
}

// Recorder takes events. Implementations that live parts use are safe for concurrent use and never block for long. A
// nil Recorder records nothing; callers check for nil before they build details.
type Recorder interface{ Record(Event) }

// Func adapts a function to a Recorder.
type Func func(Event)

// Record calls f.
func (f Func) Record(e Event) { f(e) }

// Tee returns a Recorder that passes each event to several recorders in turn, without the nil ones. It returns nil when
// none is left, so that recording nothing stays free.
func Tee(to ...Recorder) Recorder {
	var kept tee
	for _, r := range to {
		if r != nil {
			kept = append(kept, r)
		}
	}
	switch len(kept) {
	case 0:
		return nil
	case 1:
		return kept[0]
	}
	return kept
}

type tee []Recorder

func (t tee) Record(e Event) {
	for _, r := range t {
		r.Record(e)
	}
}

// MarshalJSON writes the event as one line of a recording:
// {"time":…,"request":…,"attempt":…,"hop":…,"step":…,"endpoint":…,"details":{…}}.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(eventJSON{e.Time.Seconds(), e.Request, e.Attempt, e.Hop, e.Step, e.Endpoint, e.Details})
}

// UnmarshalJSON reads what MarshalJSON wrote. It keeps unknown hops and steps, so that a recording from a newer
// windtunnel still replays.
func (e *Event) UnmarshalJSON(data []byte) error {
	var j eventJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if math.IsNaN(j.Time) || j.Time < 0 || j.Time > float64(machine.Never)/1e9/2 {
		return fmt.Errorf("time: got %v, expected seconds since the run began", j.Time)
	}
	if j.Hop == "" || j.Step == "" {
		return fmt.Errorf("hop and step: expected both, got %q and %q", j.Hop, j.Step)
	}
	*e = Event{machine.Time(math.Round(j.Time * 1e9)), j.Request, j.Attempt, j.Hop, j.Step, j.Endpoint, j.Details}
	return nil
}

type eventJSON struct {
	Time     float64 `json:"time"`
	Request  string  `json:"request"`
	Attempt  int     `json:"attempt,omitempty"`
	Hop      Hop     `json:"hop"`
	Step     Step    `json:"step"`
	Endpoint string  `json:"endpoint,omitempty"`
	Details  Details `json:"details,omitempty"`
}

// MarshalJSON writes the details as one object, in their order.
func (d Details) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range d {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(f.Key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(f.Value)
		if err != nil {
			return nil, fmt.Errorf("details.%s: %w", f.Key, err)
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads an object, keeping the order of its fields.
func (d *Details) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	t, err := dec.Token()
	if err != nil {
		return err
	}
	if t == nil {
		return nil
	}
	if t != json.Delim('{') {
		return fmt.Errorf("details: expected an object, got %v", t)
	}
	var out Details
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return err
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return err
		}
		out = append(out, Detail{k.(string), v})
	}
	*d = out
	return nil
}
