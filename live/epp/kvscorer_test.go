package epp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const kvScorer = `
profiles:
- name: default
  plugins:
    score:
      enabled:
      - {name: KVCacheManagerScorer, weight: 60, args: {endpoint: "%s", timeout: %s, cache_threshold: 0.5}}
      - {name: LoadAwareScorer, weight: 30}
`

// asks starts a picker with two idle pods and one (w2) that is busy but has the prompt cached, as manager answers.
func asks(t *testing.T, timeout string, manager http.HandlerFunc) *Picking {
	t.Helper()
	s := httptest.NewServer(manager)
	t.Cleanup(s.Close)
	k := picking(t, fmt.Sprintf(kvScorer, s.URL, timeout), 3)
	k.waiting(1, 2, 8)
	return k
}

// The manager is asked as document 003 says, and its word counts.
func TestKVCacheManagerIsAsked(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	k := asks(t, "10s", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/api/v1/score" {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		asked.Store(body)
		fmt.Fprint(w, `{"scores":{"w0":{"cache_hit_rate":0.33,"score":33.0},"w2":{"cache_hit_rate":1.0,`+
			`"score":100.0}},"recommendation":"w2"}`)
	})
	x := k.testAsk(context.Background(), chat(1), hello)
	if x.endpoint != "127.0.0.3:8000" {
		t.Fatalf("got %+v, want w2, which has the prompt", x)
	}
	x.leave()
	body, _ := asked.Load().(map[string]any)
	if diff := cmp.Diff([]any{"w0", "w1", "w2"}, body["candidate_pods"]); diff != "" || body["prompt"] == "" ||
		body["model"] != "m" {
		t.Errorf("asked %v\n%s", body, diff)
	}
}

// A manager that is slow, broken or talks nonsense scores nobody: the other
// scorers decide.
func TestKVCacheManagerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	for name, manager := range map[string]http.HandlerFunc{
		"slow": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the caller has left
			select {
			case <-r.Context().Done():
			case <-gone:
			}
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no index", http.StatusInternalServerError)
		},
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"scores":[1,2,3]}`) },
	} {
		k := asks(t, "20ms", manager)
		x := k.testAsk(context.Background(), chat(1), hello)
		if x.endpoint != "127.0.0.1:8000" {
			t.Errorf("%s: got %+v, want w0, which is the least loaded", name, x)
		}
		x.leave()
	}
}
