package chaos

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

func base(t *testing.T, file string, settings ...scenario.Setting) *Base {
	t.Helper()
	v, err := search.ReadVariant(nil, file, settings, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBase(context.Background(), v, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hold plays seeds of a scenario, and fails with what shrunk of the first that breaks an invariant.
func hold(t *testing.T, b *Base, first uint64, seeds int) {
	t.Helper()
	r, err := b.Run(context.Background(), first, seeds, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) > 0 {
		t.Fail()
	}
	if t.Failed() || testing.Verbose() {
		if err := r.Write(t.Output()); err != nil {
			t.Fatal(err)
		}
	}
}

// some are examples that differ most in their parts.
var some = []string{"plain", "pd", "batching", "faults", "sessions", "pools", "kv-manager", "held", "manifests",
	"tensor-parallel"}

// Fixed seeds, and others in each run, keep all invariants.
func TestSeeds(t *testing.T) {
	each := 3
	if nightly.On() {
		each = 300
	}
	fresh := rand.Uint64() >> 12
	for i, name := range some {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := base(t, "../../examples/"+name+".yaml",
				scenario.Setting{Path: "workload.requests", Value: "40"})
			hold(t, b, uint64(1+1000*i), each)
			hold(t, b, fresh+uint64(i*each), each)
		})
	}
}

// WINDTUNNEL_CHAOS is how many seeds are dealt to all examples.
func TestSeedsOverExamples(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("WINDTUNNEL_CHAOS"))
	if n == 0 {
		t.Skip("make chaos plays them")
	}
	list, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(file string) bool { return strings.Contains(file, "own-model-servers") })
	for i, file := range list {
		t.Run(filepath.Base(file), func(t *testing.T) {
			hold(t, base(t, file), uint64(1+i*n), (n-i+len(list)-1)/len(list))
		})
	}
}

// Scenarios in which an invariant was broken once keep it.
func TestFound(t *testing.T) {
	list, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(list) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range list {
		t.Run(filepath.Base(file), func(t *testing.T) { base(t, file) })
	}
}

// A seed always draws the same faults and a run of seeds has the same report, and other seeds draw others.
func TestSeedsAreDeterministic(t *testing.T) {
	t.Parallel()
	var reports []string
	for range 2 {
		r, err := base(t, "../../examples/pd.yaml").Run(context.Background(), 5, 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, string(text))
	}
	if reports[0] != reports[1] {
		t.Errorf("two runs of the same seeds:\n%s\n%s", reports[0], reports[1])
	}
	b := base(t, "../../examples/pd.yaml")
	draw := func(seed uint64) string { return texted(b.draw(machine.NewDraw(seed, "chaos", "faults", 0))) }
	if first, again, other := draw(1), draw(1), draw(2); first != again || first == other {
		t.Errorf("seed 1 draws %s and %s, seed 2 %s", first, again, other)
	}
}

func texted(faults []Fault) string {
	var list []string
	for _, f := range faults {
		list = append(list, f.String())
	}
	return strings.Join(list, " ")
}

// Every kind of fault is drawn that a scenario allows, and every list is read again as it was drawn.
func TestEveryKindIsDrawn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, file := range []string{"dynamo-sidecar", "kv-aware", "pd"} {
		b := base(t, "../../examples/"+file+".yaml")
		for seed := range uint64(150) {
			faults := b.draw(machine.NewDraw(seed, "chaos", "faults", 0))
			for _, f := range faults {
				seen[f.Kind()] = true
			}
			if seed%10 > 0 {
				continue
			}
			v := b.With(faults)
			s, err := v.Scenario(0)
			if err != nil {
				t.Fatalf("%s: %v", texted(faults), err)
			}
			var read []Fault
			for i := range s.Pools[0].Incidents[len(b.Scenario.Pools[0].Incidents):] {
				read = append(read, Fault{Incident: &s.Pools[0].Incidents[i+len(b.Scenario.Pools[0].Incidents)]})
			}
			drawn := slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Incident == nil })
			if texted(read) != texted(drawn) {
				t.Errorf("drawn %s, read %s", texted(drawn), texted(read))
			}
		}
	}
	for _, kind := range kinds {
		if name, _, _ := strings.Cut(kind, "="); !seen[name] {
			t.Errorf("%s is never drawn", name)
		}
	}
}

// A list shrinks to the faults that matter, and to the times that matter.
func TestShrink(t *testing.T) {
	t.Parallel()
	b := base(t, "../../examples/pd.yaml")
	faults := b.draw(machine.NewDraw(1, "chaos", "faults", 0))
	a := Fault{Incident: &scenario.Incident{What: scenario.Crash, Server: 1, For: 40 * time.Second}}
	c := Fault{OfRequests: &scenario.ServerFault{Fault: "stall"}}
	runs := 0
	got := shrink(slices.Concat(faults, []Fault{a}, faults, []Fault{c}, faults), func(list []Fault) bool {
		runs++
		crash := slices.ContainsFunc(list, func(f Fault) bool {
			return f.Incident != nil && f.Incident.What == scenario.Crash && f.Incident.Server == 1 &&
				f.Incident.For >= 3*time.Second
		})
		return crash && slices.Contains(list, c)
	})
	if texted(got) != `{at: 0s, what: crash, server: 1, for: 5s} {fault: "stall"}` || runs > mostShrinks/2 {
		t.Errorf("shrunk to %s in %d runs", texted(got), runs)
	}
}

// The Watch sees a request with no outcome or two, one that a part does not end, and tokens that get lost.
func TestWatch(t *testing.T) {
	t.Parallel()
	of := func(hop record.Hop, step record.Step, details ...record.Detail) record.Event {
		return record.Event{Request: "req-1", Hop: hop, Step: step, Details: details}
	}
	sent, received := of(record.Client, record.RequestSent), of(record.EPP, record.RequestReceived)
	began := of(record.Server, record.PrefillStarted)
	made := of(record.Server, record.LastTokenSent, record.D("tokens", 5))
	passed := of(record.EPP, record.ResponseEndSeen)
	got := func(n int) record.Event {
		return of(record.Client, record.Finished, record.D("outcome", "completed"), record.D("tokens", n))
	}
	for _, c := range []struct {
		want   string
		events []record.Event
	}{
		{"", []record.Event{sent, received, began, made, passed, got(5)}},
		{"sent 1 times and has 0 outcomes", []record.Event{sent, received, passed}},
		{"has 2 outcomes", []record.Event{sent, received, began, made, passed, got(5), got(5)}},
		{"came to the endpoint picker 1 times and ended there 0", []record.Event{sent, received, began, made, got(5)}},
		{"came to the endpoint picker 1 times and ended there 2", []record.Event{sent, received, began, made, passed,
			passed, got(5)}},
		{"came to the model servers 1 times and ended there 0", []record.Event{sent, received, began, passed, got(5)}},
		{"with 4 tokens at the client, and its model server made 5",
			[]record.Event{sent, received, began, made, passed, got(4)}},
	} {
		w := NewWatch()
		for _, e := range c.events {
			w.Record(e)
		}
		if b := w.Broken(); !strings.Contains(b, c.want) || c.want == "" && b != "" {
			t.Errorf("found %q, expected %q", b, c.want)
		}
	}
}

// An interruption ends a run with the seeds that were played until then.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := base(t, "../../examples/plain.yaml")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := b.Run(ctx, 1, 1000, func(_ string, done, _ int) {
		if done == 3 {
			cancel()
		}
	})
	if exit.Of(err) != exit.Interrupted || r == nil || r.Seeds < 3 || r.Seeds > 900 || len(r.Failures) > 0 {
		t.Errorf("found %+v, %v", r, err)
	}
}
