package epp_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// What was asked without an answer is recorded: each question of a request, and
// of pages that fail in a row the first. No secret of a URL gets into a record.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	cfg, err := config.Read("test.yaml", []byte(`
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: token-producer, parameters: {modelName: m, vllm: {url: "http://user:secret@renderer:8000"}}}
- {type: queue-scorer}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	m, err := epp.New(epp.Config{Picker: p, Stream: stream.Config{Recorder: record.Func(func(e record.Event) {
		url, _ := e.Details.Get("url").(string)
		got = append(got, string(e.Step)+" "+e.Request+e.Endpoint+" "+url)
	})}})
	if err != nil {
		t.Fatal(err)
	}
	var fx epp.Effects
	m.Input(0, epp.Endpoints{List: []*picker.Endpoint{picker.NewEndpoint("default", "w", "10.0.0.1", "8000", nil)}},
		&fx)
	r := &epp.Request{}
	if r.Request, r.Err = p.NewRequest(header.Of(":method", "POST", ":path", "/v1/completions", "x-request-id", "r"),
		[]byte(`{"model":"m","prompt":"x"}`), true, 1); r.Err != nil {
		t.Fatal(r.Err)
	}
	m.Input(0, epp.Arrive{Request: r}, &fx)
	m.Input(0, m.Answer(r, []picker.Answer{
		{Plugin: r.Needs[0].Plugin, Key: r.Needs[0].Key, Err: errors.New("refused")}}), &fx)
	target := m.Target("default/w")
	for i, failed := range []bool{true, true, false, true} {
		now := machine.Time(i+1) * machine.Second
		m.Advance(now, &fx)
		x := epp.Scraped{Target: target, Page: metrics.Page{}}
		if failed {
			x.Err = errors.New("refused")
		}
		m.Input(now, x, &fx)
	}
	page := "scrape_failed 10.0.0.1:8000 http://10.0.0.1:8000/metrics"
	if d := cmp.Diff([]string{"call_failed r http://renderer:8000/v1/completions/render", page, page}, got); d != "" {
		t.Error(d)
	}
}
