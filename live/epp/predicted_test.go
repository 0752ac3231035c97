package epp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

const predicts = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: predicted-latency-producer
  parameters: {streamingMode: true}
- type: slo-headroom-tier-filter
  parameters: {epsilonExploreNeg: 0}
- type: latency-scorer
- type: latency-slo-admitter
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: slo-headroom-tier-filter
  - pluginRef: latency-scorer
  - pluginRef: max-score-picker
`

// fakePredictor answers as the test sets it.
type fakePredictor struct {
	mu      sync.Mutex
	answer  func(w http.ResponseWriter, r *http.Request)
	asked   []predictor.Features
	samples []predictor.Sample
	gone    chan struct{}
	service picker.PredictorService // how it is asked
}

func (f *fakePredictor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == predictor.PathSamples {
		var x predictor.Entries
		_ = json.Unmarshal(text, &x)
		f.samples = append(f.samples, x.Entries...)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var x predictor.Bulk
	_ = json.Unmarshal(text, &x)
	f.asked = x.Requests
	f.answer(w, r)
}

func (f *fakePredictor) say(answer func(w http.ResponseWriter, r *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// questions are those that the last call asked.
func (f *fakePredictor) questions() []predictor.Features {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fakePredictor) waitSamples(t *testing.T, n int) []predictor.Sample {
	t.Helper()
	var list []predictor.Sample
	eventually.Is(t, fmt.Sprintf("%d samples", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		list = f.samples
		return len(list) >= n
	})
	return list
}

func text(s string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
}

// What the second of three endpoints alone would do in time.
const secondBest = `{"predictions":[{"ttft_ms":500,"tpot_ms":9},{"ttft_ms":50,"tpot_ms":9},{"ttft_ms":300,` +
	`"tpot_ms":9}]}`

// events is a recorder that can be asked.
type events struct {
	mu   sync.Mutex
	list []record.Event
}

func (e *events) Record(x record.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, x)
}

func (e *events) steps(s record.Step) (out []record.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.list {
		if x.Step == s {
			out = append(out, x)
		}
	}
	return out
}

// patient is longer than predictions take on a busy machine.
const patient = machine.Second * 300

func startFakePredictor(t *testing.T) (*fakePredictor, *httptest.Server) {
	t.Helper()
	f := &fakePredictor{answer: text(secondBest), gone: make(chan struct{})}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(f.gone) })
	f.service = picker.PredictorService{Prediction: []string{s.URL}, Timeout: patient}
	return f, s
}

func predicting(t *testing.T, rec record.Recorder) (*Picking, *fakePredictor, *httptest.Server) {
	t.Helper()
	return predictingFor(t, rec, 3)
}

func predictingFor(t *testing.T, rec record.Recorder, endpoints int) (*Picking, *fakePredictor, *httptest.Server) {
	t.Helper()
	f, s := startFakePredictor(t)
	f.service.Training = s.URL
	p := pickerOf(t, predicts, picker.Options{Detail: true, Predictor: &f.service})
	k := picking(t, "", endpoints, func(o *PickingOptions) { o.Picker, o.Stream.Recorder = p, rec })
	k.waiting(1, 2, 8)
	return k, f, s
}

func withSLO(id int) header.List {
	return chatHead(fmt.Sprint(id), "x-llm-d-slo-ttft-ms", "100", "x-llm-d-slo-tpot-ms", "20")
}

// Predictions are asked for before the decision, and the endpoint that keeps the
// objectives is chosen.
func TestPredictionsDecide(t *testing.T) {
	t.Parallel()
	rec := &events{}
	k, f, _ := predicting(t, rec)
	x := k.testAsk(context.Background(), withSLO(1), hello)
	if x.endpoint != "127.0.0.2:8000" {
		t.Fatalf("got %+v, want w1, which alone is in time", x)
	}
	if list := f.questions(); len(list) != 3 || list[2].Waiting != 8 || list[0].InputTokens == 0 ||
		list[0].Generated != 1 {
		t.Errorf("asked about %+v", list)
	}
	d := x.s.Request().Decision.Explain()
	if p := d.Profiles[0].Endpoints[0].Predicted; p == nil || p.TTFTMs != 50 || *p.TTFTHeadroomMs != 50 ||
		*p.TPOTHeadroomMs != 11 {
		t.Errorf("explained %+v", p)
	}
	// A stream of three tokens, and what it took, in two samples.
	x.fx.Reset()
	x.send(stream.Message{Kind: stream.ResponseHeaders,
		Head: header.Of(":status", "200", "content-type", "text/event-stream")})
	for i := range 3 {
		x.send(stream.Message{Kind: stream.ResponseBody,
			Body: fmt.Appendf(nil, "data: {\"choices\":[{\"delta\":{\"content\":\"t%d\"}}]}\n\n", i)})
	}
	x.send(stream.Message{Kind: stream.ResponseBody,
		Body: []byte("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\ndata: " +
			"[DONE]\n\n"), End: true})
	x.leave()
	list := f.waitSamples(t, 2)
	if a, b := list[0], list[1]; a.TTFTMs <= 0 || a.TPOTMs != 0 || a.Waiting != 2 || b.TPOTMs <= 0 || b.TTFTMs != 0 ||
		b.Prefix != 0 {
		t.Errorf("samples %+v", list)
	}
	checked := rec.steps(record.PredictionChecked)
	if len(checked) != 1 || checked[0].Details.Get("predicted_ttft_ms") != 50.0 ||
		checked[0].Endpoint != "127.0.0.2:8000" {
		t.Errorf("recorded %+v", checked)
	}
}

// More than a hundred endpoints are asked about in one question, where llm-d's client
// gives up.
func TestPredictionsForManyEndpoints(t *testing.T) {
	t.Parallel()
	const many = 120
	k, f, _ := predictingFor(t, nil, many)
	list, addresses := make([]string, many), map[string]string{}
	for i := range list {
		addresses[fmt.Sprint("w", i)] = fmt.Sprintf("127.0.0.%d:8000", i+1)
		list[i] = `{"ttft_ms":500,"tpot_ms":9}`
	}
	list[110] = `{"ttft_ms":50,"tpot_ms":9}`
	f.say(text(`{"predictions":[` + strings.Join(list, ",") + `]}`))
	inTime := addresses[slices.Sorted(maps.Keys(addresses))[110]]
	if x := k.testAsk(context.Background(), withSLO(1), hello); x.endpoint != inTime {
		t.Errorf("got %s, expected %s, which alone is in time", x.endpoint, inTime)
	}
	if n := len(f.questions()); n != many {
		t.Errorf("asked about %d endpoints, expected %d", n, many)
	}
}

// Predicted and measured times are reported under document 004's names and under today's, which contain the plug-in's
// name.
func TestPredictionMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	f, _ := startFakePredictor(t)
	p := pickerOf(t, predicts, picker.Options{Detail: true, Predictor: &f.service})
	m := NewPickMetrics(reg, "pool")
	k := picking(t, "", 3, func(o *PickingOptions) { o.Picker, o.Metrics = p, m })
	k.waiting(1, 2, 8)
	x := k.testAsk(context.Background(), withSLO(1), hello)
	r := x.s.Request().Request
	m.measured(p, r, 150*time.Millisecond, 10*time.Millisecond, m.labels.request(r))
	x.leave()
	const by = `plugin_name="predicted-latency-producer",plugin_type="predicted-latency-producer",`
	for _, c := range []struct{ family, twin, more string }{
		{"request_predicted_ttft_seconds_sum", "llm_d_epp_", " 0.05"},
		{"request_predicted_ttft_seconds_bucket", "llm_d_epp_", `le="3600"} 1`},
		{"request_predicted_tpot_seconds_sum", "llm_d_epp_", " 0.009"},
		{"request_predicted_tpot_seconds_bucket", "llm_d_epp_", `le="360"} 1`},
		{"request_ttft_prediction_duration_seconds_bucket", "llm_d_epp_", `le="5"} 1`},
		{"request_tpot_prediction_duration_seconds_count", "llm_d_epp_", " 1"},
		{"request_slo_violation_total", "llm_d_epp_", `type="ttft"} 1`},
		{"inference_request_metric", "llm_d_epp_", `type="ttft"} 0.15`},
		{"inference_request_metric", "llm_d_epp_", `type="predicted_tpot"} 0.009`},
		{"inference_request_metric", "llm_d_epp_", `type="ttft_slo_violation"} 1`},
		{"inference_request_metric", "llm_d_epp_", `type="tpot_slo_violation"} 0`},
		{"request_tpot_seconds_sum", "", " 0.01"},
		{"request_ttft_seconds_sum", "", " 0.15"},
	} {
		old := strings.Join(seriesOf(reg, "inference_objective_"+c.family), "\n") + "\n"
		if !strings.Contains(old, c.more+"\n") || strings.Contains(old, "plugin_name") {
			t.Errorf("inference_objective_%s: %s; expected …%s", c.family, old, c.more)
		}
		if c.twin == "" {
			continue
		}
		if now := strings.Join(seriesOf(reg, c.twin+c.family), "\n") + "\n"; !strings.Contains(now, c.more+"\n") ||
			!strings.Contains(now, by) {
			t.Errorf("%s%s: %s; expected …%s", c.twin, c.family, now, c.more)
		}
	}
	if got := seriesOf(reg, "llm_d_epp_request_slo_violation_total"); len(got) != 1 {
		t.Errorf("violations %q; expected that of the first token alone", got)
	}
	// Without the plug-in there is nothing to name: document 004's times alone.
	reg = prometheus.NewRegistry()
	m = NewPickMetrics(reg, "pool")
	m.measured(pickerOf(t, "plugins: [{type: queue-scorer}]", picker.Options{}), r, 150*time.Millisecond, 0,
		m.labels.request(r))
	if a, b := len(seriesOf(reg, "inference_objective_inference_request_metric")),
		len(seriesOf(reg, "llm_d_epp_inference_request_metric")); a != 2 || b != 0 {
		t.Errorf("without the plug-in %d and %d gauges; expected 2 and 0", a, b)
	}
}

// A predictor that is slow, broken, gone or talks nonsense: the others decide, the
// record says so, and it is asked again.
func TestPredictorDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(f *fakePredictor, s *httptest.Server){
		"slow": func(f *fakePredictor, _ *httptest.Server) {
			f.service.Timeout = machine.Millisecond
			f.say(func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-f.gone:
				}
			})
		},
		"broken": func(f *fakePredictor, _ *httptest.Server) {
			f.say(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
		},
		"cut": func(f *fakePredictor, _ *httptest.Server) {
			f.say(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				fmt.Fprint(w, secondBest[:40])
			})
		},
		"nonsense": func(f *fakePredictor, _ *httptest.Server) { f.say(text(`<html>`)) },
		"no number": func(f *fakePredictor, _ *httptest.Server) {
			f.say(text(strings.Replace(secondBest, "500", "NaN", 1)))
		},
		"too large a number": func(f *fakePredictor, _ *httptest.Server) {
			f.say(text(strings.Replace(secondBest, "500", "1e999", 1)))
		},
		"negative": func(f *fakePredictor, _ *httptest.Server) {
			f.say(text(strings.Replace(secondBest, "500", "-1", 1)))
		},
		"null": func(f *fakePredictor, _ *httptest.Server) {
			f.say(text(strings.Replace(secondBest, "500", "null", 1)))
		},
		"without a field": func(f *fakePredictor, _ *httptest.Server) { f.say(text(`{"predictions":[{},{},{}]}`)) },
		"too few": func(f *fakePredictor,
			_ *httptest.Server) {
			f.say(text(`{"predictions":[{"ttft_ms":5,"tpot_ms":9}]}`))
		},
		"too many": func(f *fakePredictor, _ *httptest.Server) {
			f.say(text(strings.Replace(secondBest, "[", `[{"ttft_ms":5,"tpot_ms":9},`, 1)))
		},
		"gone": func(_ *fakePredictor, s *httptest.Server) { s.CloseClientConnections(); s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := &events{}
			k, f, s := predicting(t, rec)
			bad(f, s)
			x := k.testAsk(context.Background(), withSLO(1), hello)
			if x.endpoint != "127.0.0.1:8000" {
				t.Errorf("got %+v, want w0, which has the shortest queue", x)
			}
			x.leave()
			if failed := rec.steps(record.CallFailed); len(failed) != 1 ||
				failed[0].Details.Get("plugin") != "predicted-latency-producer" {
				t.Errorf("recorded %+v", failed)
			}
			if name == "gone" {
				return
			}
			f.say(text(secondBest))
			f.service.Timeout = patient
			x = k.testAsk(context.Background(), withSLO(2), hello)
			if x.endpoint != "127.0.0.2:8000" {
				t.Errorf("once it answers again: got %+v, want w1", x)
			}
			x.leave()
		})
	}
}
