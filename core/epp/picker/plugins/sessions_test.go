package plugins

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// What is remembered of sessions, whose ids clients make up, is bounded in bytes,
// and strangers' ids do not keep a new session from being remembered.
func TestSessionsAreBounded(t *testing.T) { // not in parallel: it looks at the heap
	for _, text := range []string{
		"plugins: [{type: session-affinity-filter, parameters: {strategy: session_id}}, {type: round-robin-picker}]",
		"plugins: [{type: session-affinity-scorer, parameters: {strategy: session_id}}]",
		"plugins: [{type: session-sticky-scorer}]",
		"plugins: [{type: session-prefix-scorer}]",
		"plugins: [{type: conversation-profile-handler}, {type: queue-scorer}]\nschedulingProfiles: [{name: prefill, " +
			"plugins: [{pluginRef: queue-scorer}]}, {name: decode, plugins: [{pluginRef: queue-scorer}]}]",
	} {
		p := experimental(t, text)
		heap := func() uint64 {
			var s runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&s)
			return s.HeapAlloc
		}
		before := heap()
		long := strings.Repeat("x", 1<<16)
		for i := range 3000 { // 188 MiB
			ask(t, p, "hello", nil, header.Header{Name: picker.HeaderSessionID, Value: fmt.Sprint(i, long)})
		}
		if took := int64(heap() - before); took > 150<<20 {
			t.Errorf("%s: %d MiB are remembered", text, took>>20)
		}
		mine := header.Header{Name: picker.HeaderSessionID, Value: "mine"}
		first := ask(t, p, "hello", nil, mine)
		for range 4 {
			d := ask(t, p, "hello", nil, mine)
			if strings.Contains(text, "conversation") {
				if d.PrimaryProfile().Name != "decode" {
					t.Errorf("%s: the conversation is new again", text)
				}
			} else if d.Destination() != first.Destination() {
				t.Errorf("%s: the session left %s for %s", text, first.Destination(), d.Destination())
			}
		}
		runtime.KeepAlive(p)
	}
}

// A picker that loads a saved state has the same sessions and requests per second as the saved one.
func TestSessionsAreSaved(t *testing.T) {
	const text = `plugins:
- {type: conversation-profile-handler}
- {type: session-prefix-scorer}
- {type: session-affinity-scorer, parameters: {strategy: session_id}}
- {type: session-sticky-scorer}
- {type: qps-load-scorer, parameters: {maxQps: 10}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: qps-load-scorer}]}
- {name: decode, plugins: [{pluginRef: session-prefix-scorer}, {pluginRef: session-affinity-scorer, weight: 10}, {pluginRef: session-sticky-scorer, weight: 100}, {pluginRef: qps-load-scorer, weight: 1000}]}
`
	session := func(name string) header.Header { return header.Header{Name: picker.HeaderSessionID, Value: name} }
	p, q := experimental(t, text), experimental(t, text)
	for i := range 5 {
		ask(t, p, "hello", []string{"127.0.0.2:1"}, session(fmt.Sprint(i%2)))
	}
	saved, err := json.Marshal(p.Save())
	if err != nil {
		t.Fatal(err)
	}
	var state picker.Saved
	if err := json.Unmarshal(saved, &state); err != nil {
		t.Fatal(err)
	}
	if err := q.Load(&state, false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0", "1", "new"} {
		x, y := ask(t, p, "hello", nil, session(name)), ask(t, q, "hello", nil, session(name))
		if name == "0" && fmt.Sprint(x.Scores()) != "map[127.0.0.1:1:1000 127.0.0.2:1:611]" {
			t.Errorf("the scores are %v", x.Scores())
		}
		if x.PrimaryProfile().Name != y.PrimaryProfile().Name || fmt.Sprint(x.Scores()) != fmt.Sprint(y.Scores()) {
			t.Errorf("%s: by %s %v, and from the saved state by %s %v", name, x.PrimaryProfile().Name, x.Scores(),
				y.PrimaryProfile().Name, y.Scores())
		}
	}
}
