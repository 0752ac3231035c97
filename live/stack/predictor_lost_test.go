package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/predictor"
	"github.com/windtunnel/windtunnel/scenario"
)

// byPrediction routes by predicted latency.
const byPrediction = `
plugins:
- {type: predicted-latency-producer, parameters: {streamingMode: true}}
- {type: latency-scorer}
- {type: max-score-picker}
`

// leaves are models that say 7 ms of everything, in place of the library's.
func leaves(_ context.Context, f core.Fit) core.Fitted {
	out := core.Fitted{Number: f.Number, Library: "leaves", Models: map[core.Name][]byte{}}
	for _, set := range f.Sets {
		out.Models[set.Name] = fmt.Appendf(nil,
			`{"learner":{"gradient_booster":{"name":"gbtree","model":{"trees":[{"left_children":[-1],`+
				`"right_children":[-1],"split_indices":[0],`+
				`"split_conditions":[7],"default_left":[0],"split_type":[0]}]}},`+
				`"learner_model_param":{"base_score":"[0]","num_feature":"%d"},`+
				`"objective":{"name":"reg:squarederror"}}}`, len(set.Columns))
	}
	return out
}

// predictionTally counts requests that ended with what the models say, and without a
// prediction, and why questions were given up.
type predictionTally struct {
	record.Recorder
	mu            sync.Mutex
	learned, none int
	failed        []string
}

func (p *predictionTally) Record(e record.Event) {
	p.Recorder.Record(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Step == record.CallFailed && e.Details.Get("plugin") == "predicted-latency-producer":
		p.failed = append(p.failed, fmt.Sprint(e.Details.Get("reason")))
	case e.Step != record.PredictionChecked:
	case e.Details.Get("predicted_ttft_ms") == 7.0:
		p.learned++
	case e.Details.Get("predicted_ttft_ms") == nil:
		p.none++
	}
}

func (p *predictionTally) counts(why string) (learned, none, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, reason := range p.failed {
		if strings.Contains(reason, why) {
			failed++
		}
	}
	return p.learned, p.none, failed
}

// The latency predictor goes down in the middle of a run, and its address is taken by a program that never answers, and
// then by one whose answers are invalid: requests are served without predictions, and none is lost. Once it is back it
// is asked, and learns, again.
func TestPredictorLost(t *testing.T) {
	t.Parallel()
	s := quick(func(s *scenario.Scenario) {
		p := &s.Pools[0]
		p.EPP.Config.Text = []byte(byPrediction)
		p.Predictor.Train, p.Predictor.RetrainingInterval = true, 20*time.Millisecond
	})
	tally := &predictionTally{}
	r := start(t, s, func(o *Options) {
		tally.Recorder, o.Recorder = o.Recorder, tally
		o.Fit = leaves
	})
	var stopped atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stopped.Load() {
				if a := r.post("/v1/chat/completions", chat); a.err != nil || a.status != 200 {
					t.Errorf("a request was lost: %d %v %.300q", a.status, a.err, a.body)
					return
				}
			}
		})
	}
	defer clients.Wait()
	defer stopped.Store(true)
	r.until("it has learned", func() bool { n, _, _ := tally.counts(""); return n >= 10 })

	training, prediction := r.Predictor.TrainingAddress(), r.Predictor.PredictionAddresses()[0]
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Predictor.Stop(gone) // at once: what it was asked is cut off
	without := func(what, why string) {
		t.Helper()
		_, before, _ := tally.counts("")
		r.until("requests while it is "+what,
			func() bool { _, n, failed := tally.counts(why); return n >= before+10 && failed >= 10 })
	}
	without("gone", "connection refused")
	for _, c := range []struct {
		what, why string
		answer    http.HandlerFunc
	}{
		{"slow", "deadline exceeded", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}},
		{"talking nonsense", "the latency predictor's answer", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"predictions":[{"ttft_ms":-1,"tpot_ms":1},{"ttft_ms":1,"tpot_ms":1}]}`)
		}},
	} {
		l, err := net.Listen("tcp", prediction)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: c.answer, ReadHeaderTimeout: patience}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		without(c.what, c.why)
		srv.Close()
		<-served
	}

	again, err := predictor.Start(
		predictor.Options{Training: training, Prediction: []string{prediction},
			Machine: compiled(t, s).Pools[0].Predictor.NewMachine(), Fit: leaves})
	if err != nil {
		t.Fatal(err)
	}
	r.Pool.Predictor = again
	learned, _, _ := tally.counts("")
	r.until("it has learned again", func() bool { n, _, _ := tally.counts(""); return n >= learned+10 })
	stopped.Store(true)
	clients.Wait()
	r.idle()
}
