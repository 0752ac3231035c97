package stack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// preciseApart are two prefill and two decode servers, chosen by the index of
// what they announce. The decider reads the matches of the producer that bears
// the approximate one's name: here the precise one.
var preciseApart = strings.NewReplacer(
	"replicas: 1\n", "replicas: 2\n",
	"prefillReplicas: 1", "prefillReplicas: 2",
	"{type: precise-prefix-cache-producer, ",
	"{type: precise-prefix-cache-producer, name: approx-prefix-cache-producer, ",
	"extractors: [{pluginRef: precise-prefix-cache-producer}]",
	"extractors: [{pluginRef: approx-prefix-cache-producer}]",
	"prefixMatchInfoProducerName: precise-prefix-cache-producer",
	"prefixMatchInfoProducerName: approx-prefix-cache-producer",
).Replace(indexed)

// route is where a request went.
type route struct{ prefiller, decoder string }

// routes are those of all requests, in the order of their arrival at sidecars.
func (r *rig) routes() []route {
	var out []route
	decoder := map[string]string{}
	for _, e := range r.rec.all() {
		switch {
		case e.Hop == record.EPP && e.Step == record.EndpointPicked:
			decoder[e.Request] = e.Endpoint
		case e.Hop == record.Sidecar && e.Step == record.PrefillDecided:
			x := route{decoder: decoder[e.Request]}
			if fmt.Sprint(e.Details.Get("decision")) == "disaggregated" {
				x.prefiller = e.Endpoint
			}
			out = append(out, x)
		}
	}
	return out
}

func chatBody(turns ...string) string {
	for i, word := range turns {
		turns[i] = strings.Repeat(word+" ", 400)
	}
	return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Join(turns, "") + `"}]}`
}

// Prefiller and decoder are those that hold the prompt's beginning, as their
// engines said; a prompt that the decoder holds is not prefilled elsewhere; and
// when the index is lost, requests are prefilled once more and end whole.
func TestPreciseChoosesPrefillerAndDecoder(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("precise.yaml", []byte(preciseApart))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	say := func(body string) route {
		t.Helper()
		n := len(r.routes())
		r.okay(r.post(chatPath, body))
		r.settled()
		all := r.routes()
		if len(all) != n+1 {
			t.Fatalf("%d requests at sidecars, expected %d", len(all), n+1)
		}
		return all[n]
	}
	union := func() { t.Helper(); r.indexIs("the union", whole) }

	cold := map[string]route{}
	for _, word := range []string{"alpha", "beta", "gamma", "delta"} {
		cold[word] = say(chatBody(word))
		if cold[word].prefiller == "" {
			t.Fatalf("%s, cold: %+v", word, cold[word])
		}
		union()
	}
	for word, first := range cold {
		if warm := say(chatBody(word)); warm.prefiller != "" || warm.decoder != first.decoder {
			t.Errorf("%s, warm: %+v after %+v", word, warm, first)
		}
		// A long turn more: prefilled elsewhere, and there and here by those who
		// know the beginning.
		if more := say(chatBody(word, word+"s")); more != first {
			t.Errorf("%s, one turn more: %+v after %+v", word, more, first)
		}
		union()
	}
	held := r.checkKV()[0]
	if held.Pods < 2 || !slices.ContainsFunc(r.engineBlocks()[2:], nonEmpty) ||
		!slices.ContainsFunc(r.engineBlocks()[:2], nonEmpty) {
		t.Errorf("prefill and decode servers should both hold blocks: %+v", held)
	}

	r.loseIndex()
	r.indexIs("empty", func(c report.IndexSummary) bool { return c.Missing == c.Blocks && c.Blocks > 0 })
	if again := say(chatBody("alpha")); again.prefiller == "" {
		t.Errorf("nobody is known to hold it: %+v", again)
	}
	r.settled()
}

func nonEmpty[E any](list []E) bool { return len(list) > 0 }
