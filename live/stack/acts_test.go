package stack

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/scenario"
)

// Actions from the page end with the stack: after Stop nothing happens, and nothing is recorded.
func TestActsEndWithTheStack(t *testing.T) {
	t.Parallel()
	rec := &recording{}
	s, err := scenario.Parse("acts.yaml", []byte(indexed))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := Start(ctx, Options{Scenario: s, Recorder: rec, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	crash := scenario.Incident{What: scenario.Crash, For: time.Hour}
	if err := st.Happen(ctx, 0, crash); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- st.More(ctx, 1, time.Hour) }()
	for rec.count(record.Client, record.Acted) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := st.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-sent:
	default:
		t.Error("requests are still sent")
	}
	events := len(rec.all())
	for _, x := range []scenario.Incident{{What: scenario.LoseIndex}, {What: scenario.RestartEPP},
		{What: scenario.RestartEPP, For: time.Millisecond}, crash} {
		if err := st.Happen(ctx, 0, x); !errors.Is(err, errDown) {
			t.Errorf("%s: %v", x.What, err)
		}
	}
	for _, err := range []error{st.Prefill(0, 0, 0), st.Configure(0, ""), st.More(ctx, 1, time.Second)} {
		if !errors.Is(err, errDown) {
			t.Error(err)
		}
	}
	if n := len(rec.all()); n != events {
		t.Errorf("%d events after the end", n-events)
	}
}

// guarded is a log that several write.
type guarded struct {
	mu   sync.Mutex
	text strings.Builder
}

func (g *guarded) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

func (g *guarded) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

// An index that is lost while its picker is gone is no reason to panic.
func TestIndexLostWithoutPicker(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("lost.yaml", []byte(indexed))
	if err != nil {
		t.Fatal(err)
	}
	var log guarded
	r := start(t, s, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r.Picker.kill()
	victim{s: r.Pool}.LoseIndexes()
	r.Picker.now().Input(core.Endpoints{})
	if err := r.Picker.revive(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Contains(text, "panic") {
		t.Error(text)
	}
}

// What cannot restart leaves nothing open behind, and restarts once it can.
func TestFrontendThatCannotRestart(t *testing.T) {
	t.Parallel()
	r := start(t, quick(func(s *scenario.Scenario) {
		s.Pools[0].EPP.Config.Text = []byte(byFrontend)
		s.Pools[0].Dynamo.Frontend, s.Pools[0].Dynamo.PushInterval = scenario.SidecarFrontend, time.Second
	}), nil)
	x := planned(t, r.Pool, scenario.Incident{What: scenario.RestartFrontend, For: time.Second})
	if err := r.happen(x); err != nil {
		t.Fatal(err)
	}
	l, err := serve.Listen("another part", r.frontend.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.recover(x); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("on a port that is taken: %v", err)
	}
	l.Close()
	if err := r.recover(x); err != nil {
		t.Fatal(err)
	}
	r.until("all workers have pushed again", func() bool { return r.frontend.Workers() == len(r.Fleet.Servers()) })
}
