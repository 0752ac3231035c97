package stack

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

type recording struct {
	mu     sync.Mutex
	events []flow.Event
}

func (r *recording) Record(e flow.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func TestHeld(t *testing.T) {
	s := scenario.Embedded()
	s.Workload.Requests = 2
	rec := &recording{}
	st, err := Start(context.Background(), Options{Scenario: s, Recorder: rec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := st.Load(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log(st.Startup)
	if err := st.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, e := range rec.events {
		t.Logf("%v %s %s %s %v", e.Time, e.Request, e.Hop, e.Step, e.Details)
	}
}
