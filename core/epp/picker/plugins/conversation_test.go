package plugins

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// A conversation stays at its endpoint, even if no endpoint announces the conversation.
func TestConversationsAreLearnt(t *testing.T) {
	p := experimental(t, "plugins: [{type: session-prefix-scorer}, {type: queue-scorer}]\nschedulingProfiles: "+
		"[{name: default, plugins: [{pluginRef: session-prefix-scorer, weight: 3}, {pluginRef: queue-scorer}]}]")
	mine := header.Header{Name: picker.HeaderSessionID, Value: "conv-1"}
	p.Pool().Update(0, 0, picker.Metrics{Waiting: 9}) // so that b is better
	if d := ask(t, p, "hello", nil, mine); d.Destination() != "127.0.0.2:1" {
		t.Fatal(d.Destination())
	}
	p.Pool().Update(0, 0, picker.Metrics{})
	p.Pool().Update(0, 1, picker.Metrics{Waiting: 9}) // and now a
	if d := ask(t, p, "hello", nil, mine); d.Destination() != "127.0.0.2:1" {
		t.Errorf("the conversation left for %s", d.Destination())
	}
	if d := ask(t, p, "hello", nil,
		header.Header{Name: picker.HeaderSessionID, Value: "conv-2"}); d.Destination() != "127.0.0.1:1" {
		t.Errorf("another one went to %s", d.Destination())
	}
}

// Where an endpoint does not announce its requests per second, the scorer counts those that the picker sent.
func TestRequestsPerSecondAreLearnt(t *testing.T) {
	p := experimental(t, "plugins: [{type: qps-load-scorer, parameters: {maxQps: 10}}]\nschedulingProfiles: [{name: "+
		"default, plugins: [{pluginRef: qps-load-scorer}]}]")
	for range 5 {
		ask(t, p, "hello", []string{"127.0.0.1:1"})
	}
	score := func(now machine.Time) float64 {
		r, fault := p.NewRequest(header.List{{Name: ":path", Value: "/v1/completions"}},
			[]byte(`{"model":"m","prompt":"hello"}`), true, 1)
		if fault == nil {
			_, fault = p.Prepare(now, r)
		}
		if fault != nil {
			t.Fatal(fault)
		}
		d := p.Pick(now, r, p.Pool().View(), nil, nil)
		if d.Destination() == "127.0.0.1:1" && now < machine.Second {
			t.Errorf("%v: the busy endpoint was taken", now)
		}
		return d.Scores()["127.0.0.1:1"]
	}
	for _, c := range []struct {
		now  machine.Time
		want float64
	}{{0, .5}, {900 * machine.Millisecond, .5}, {machine.Second, 1}} {
		if got := score(c.now); got != c.want {
			t.Errorf("after %v: %v, expected %v", c.now, got, c.want)
		}
	}
}
