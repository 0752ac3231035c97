package epp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// echoing predicts of each row as many milliseconds as it has tokens.
func echoing(t *testing.T, calls *atomic.Int32, short bool) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var x predictor.Bulk
		if err := json.NewDecoder(r.Body).Decode(&x); err != nil {
			t.Error(err)
		}
		var list []string
		for _, row := range x.Requests {
			list = append(list, fmt.Sprintf(`{"ttft_ms":%d,"tpot_ms":1}`, row.InputTokens))
		}
		if short {
			list = list[1:]
		}
		fmt.Fprintf(w, `{"predictions":[%s]}`, strings.Join(list, ","))
	}))
	t.Cleanup(s.Close)
	return s
}

func question(url string, wait machine.Time, tokens ...int64) *picker.Need {
	var rows []predictor.Features
	for _, n := range tokens {
		rows = append(rows, predictor.Features{InputTokens: n})
	}
	return &picker.Need{Method: "POST", URL: url, Subject: rows, Together: wait, Timeout: 20 * machine.Second}
}

// Questions of several requests are one, and each gets its own predictions; where the
// answer is not whole, nobody does.
func TestQuestionsTogether(t *testing.T) {
	t.Parallel()
	for _, short := range []bool{false, true} {
		var calls atomic.Int32
		s := echoing(t, &calls, short)
		k := picking(t, "plugins: [{type: queue-scorer}]", 1)
		var all sync.WaitGroup
		for i := range int64(8) {
			all.Go(func() {
				n := question(s.URL, 3600*machine.Second, 10*i, 10*i+1, 10*i+2)
				got, err := k.coalescer.predict(context.Background(), k, n)
				switch {
				case short && (err == nil || !strings.Contains(err.Error(), "answered 23 predictions; expected 24")):
					t.Errorf("an answer too short: %v %v", got, err)
				case !short && (err != nil || len(got) != 3 || got[0].TTFTMs != float64(10*i) ||
					got[2].TTFTMs != float64(10*i+2)):
					t.Errorf("question %d: %v %v", i, got, err)
				}
			})
		}
		var j *joint
		eventually.Is(t, "the questions wait for each other", func() bool {
			k.coalescer.mu.Lock()
			defer k.coalescer.mu.Unlock()
			j = k.coalescer.waiting[s.URL]
			return j != nil && len(j.rows) == 24
		})
		k.coalescer.send(k, j, *question(s.URL, 3600*machine.Second)) // as when the hour is over
		all.Wait()
		if calls.Load() != 1 {
			t.Errorf("%d calls; expected one", calls.Load())
		}
		// The next one begins another, which is sent when its time has come.
		got, err := k.coalescer.predict(context.Background(), k, question(s.URL, machine.Millisecond, 5, 6))
		if !short && (err != nil || len(got) != 2 || got[1].TTFTMs != 6) || calls.Load() != 2 {
			t.Errorf("alone: %v %v, %d calls", got, err, calls.Load())
		}
		// A client that has left does not wait.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := k.coalescer.predict(ctx, k, question(s.URL, 3600*machine.Second, 5)); err == nil {
			t.Error("it waited for an answer that nobody needs")
		}
	}
}
