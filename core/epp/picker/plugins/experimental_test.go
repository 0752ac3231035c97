package plugins

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// experimental makes a picker over two endpoints, a and b.
func experimental(t *testing.T, text string) *picker.Picker {
	t.Helper()
	cfg, err := config.Read("epp.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, Builtin(), picker.Options{AllowExperimental: true})
	if err != nil {
		t.Fatal(err)
	}
	p.Pool().Set([]*picker.Endpoint{picker.NewEndpoint("d", "a", "127.0.0.1", "1", nil),
		picker.NewEndpoint("d", "b", "127.0.0.2", "1", nil)})
	return p
}

func ask(t *testing.T, p *picker.Picker, text string, subset []string, headers ...header.Header) *picker.Decision {
	t.Helper()
	r, fault := p.NewRequest(append(headers, header.Header{Name: ":path", Value: "/v1/completions"}),
		[]byte(`{"model":"m","prompt":"`+text+`"}`), true, 1)
	if fault == nil {
		r.Subset, r.HasSubset = subset, subset != nil
		_, fault = p.Prepare(0, r)
	}
	if fault != nil {
		t.Fatal(fault)
	}
	d := p.Pick(0, r, p.Pool().View(), nil, nil)
	p.Commit(0, d)
	p.Release(0, d)
	return d
}

// The sidecar gets the name of the endpoint that holds the prompt, unless that endpoint also computes it.
func TestPeerToPeerSource(t *testing.T) {
	p := experimental(t, "plugins: [{type: approx-prefix-cache-producer, parameters: {autoTune: false, "+
		"blockSizeTokens: 64}}, {type: p2p-source-producer, parameters: {minCachedTokenDelta: 100}}, {type: "+
		"queue-scorer}]")
	source := func(d *picker.Decision) string { return d.Set.Get(picker.HeaderKVSource) }
	long := strings.Repeat("0123456789abcdef", 32) // 128 tokens
	if d := ask(t, p, long, []string{"127.0.0.1:1"}); source(d) != "" {
		t.Errorf("nobody holds it, but: %s", source(d))
	}
	if d := ask(t, p, long, []string{"127.0.0.1:1"}); source(d) != "" {
		t.Errorf("who computes it holds it, but: %s", source(d))
	}
	p.Pool().Update(0, 0, picker.Metrics{Waiting: 9}) // so that b is better
	if d := ask(t, p, long, nil); d.Destination() != "127.0.0.2:1" || source(d) != "127.0.0.1:1" {
		t.Errorf("%s fetches from %q", d.Destination(), source(d))
	}
	short := strings.Repeat("fedcba9876543210", 16) // 64 tokens are not worth it
	ask(t, p, short, []string{"127.0.0.1:1"})
	if d := ask(t, p, short, nil); source(d) != "" {
		t.Errorf("%s fetches a little from %s", d.Destination(), source(d))
	}
}

// A coding agent's session is a flow, unless the client names one.
func TestAgentIdentity(t *testing.T) {
	p := experimental(t, "plugins: [{type: agent-identity, parameters: {additionalSessionHeaders: [X-Mine]}}, {type: "+
		"queue-scorer}]")
	for _, c := range []struct {
		headers header.List
		flow    string
	}{
		{nil, picker.DefaultFairnessID},
		{header.Of("session_id", "old", "session-id", "new"), "new"},
		{header.Of("session-id", "codex", "X-Mine", "mine"), "mine"},
		{header.Of("x-mine", "mine", picker.HeadersFairness[0], "tenant"), "tenant"},
	} {
		if got := ask(t, p, "x", nil, c.headers...).Request.FairnessID; got != c.flow {
			t.Errorf("%v is flow %q, want %q", c.headers, got, c.flow)
		}
	}
}

// The scorer compares a label with a header. Of a header that may carry a credential it keeps only a digest.
func TestHeaderLabels(t *testing.T) {
	for _, name := range []string{"X-Tenant", "x-tenant-secret"} {
		p := experimental(t, "plugins: [{type: header-label-affinity-scorer, parameters: {headerName: "+name+
			", labelKey: tenant}}]")
		var list []*picker.Endpoint
		for _, tenant := range []string{"nobody", "blue", "green"} {
			list = append(list, picker.NewEndpoint("d", tenant, tenant, "1", map[string]string{"tenant": tenant}))
		}
		p.Pool().Set(list)
		for _, tenant := range []string{"green", "blue", "green", "blue"} {
			d := ask(t, p, "x", nil, header.Header{Name: strings.ToLower(name), Value: tenant})
			if got := d.Destination(); got != tenant+":1" {
				t.Errorf("%s: %s went to %s", name, tenant, got)
			}
		}
	}
}
