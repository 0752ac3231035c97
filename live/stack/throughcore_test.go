package stack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// replayTime is the variable of make test-replay: how long each example is played.
const replayTime = "WINDTUNNEL_REPLAY_TIME"

// exampleTime is for how long each example is played live at most: a part of it
// in every test, and longer with make test-replay, which gives the variable.
func exampleTime(t *testing.T) time.Duration {
	text := os.Getenv(replayTime)
	if text == "" {
		return 2 * time.Second
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// For every example (see examples): what entered the endpoint picker of a live run, behind the
// real Envoy, gives in another picker the decisions of that run. playAgain, when
// each ends, compares all effects and, at every beginning of a file, all state.
func TestExamplesThroughCore(t *testing.T) {
	t.Parallel()
	limit := exampleTime(t)
	for _, file := range examples(t) {
		if strings.HasPrefix(filepath.Base(file), "own-") {
			continue // its model servers are external
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Pools[0].Picked() {
				return // there is no endpoint picker, and so nothing enters it
			}
			var r *rig
			t.Cleanup(func() { // behind rig's own
				if r != nil && (r.played.Decisions == 0 || r.played.Gaps > 0) {
					t.Errorf("played again: %+v", r.played)
				}
				t.Logf("%+v", r.played)
			})
			r = start(t, s, nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() { // the time counts from the first decision, however busy the machine
				defer cancel()
				for r.rec.count(record.EPP, record.EndpointPicked) == 0 && ctx.Err() == nil {
					time.Sleep(2 * time.Millisecond)
				}
				select {
				case <-time.After(limit):
				case <-ctx.Done():
				}
			}()
			if err := r.Load(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
}
