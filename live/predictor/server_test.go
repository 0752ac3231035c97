package predictor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/fakebin"
)

// leaf returns a model of one leaf.
func leaf(columns []core.Column, value float64) []byte {
	return fmt.Appendf(nil, `{"learner":{"gradient_booster":{"name":"gbtree","model":{"trees":[{"left_children":[-1],`+
		`"right_children":[-1],"split_indices":[0],`+
		`"split_conditions":[%v],"default_left":[0],"split_type":[0]}]}},"learner_model_param":{"base_score":"[0]",`+
		`"num_feature":"%d"},"objective":{"name":"reg:squarederror"}}}`, value, len(columns))
}

func serving(t *testing.T, fit func(context.Context, core.Fit) core.Fitted) *Server {
	t.Helper()
	o := core.DefaultOptions()
	o.Interval = 20 * machine.Millisecond
	s, err := Start(Options{Training: "127.0.0.1:0", Prediction: []string{"127.0.0.1:0"}, Machine: core.New(o, nil),
		Fit: fit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

const row = `{"kv_cache_percentage":0.3,"input_token_length":900,"num_request_waiting":0,"num_request_running":4,` +
	`"num_tokens_generated":1,"prefix_cache_score":0}`

func samples(n int) string {
	var b bytes.Buffer
	b.WriteString(`{"entries":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s,"actual_ttft_ms":%d,"actual_tpot_ms":5,"timestamp":"2026-01-02T03:04:05.123456789+01:00",`+
			`"a_newer_field":1}`, strings.TrimSuffix(row, "}"), 10+i)
	}
	return b.String() + `]}`
}

// Both servers answer as the real ones do, before and after the first training.
func TestServers(t *testing.T) {
	t.Parallel()
	fail := atomic.Bool{}
	s := serving(t, func(_ context.Context, f core.Fit) core.Fitted {
		if fail.Load() {
			return core.Fitted{Number: f.Number, Err: errors.New("no trees today")}
		}
		out := core.Fitted{Number: f.Number, Library: "a library", Models: map[core.Name][]byte{}}
		for _, set := range f.Sets {
			out.Models[set.Name] = leaf(set.Columns, 7)
		}
		return out
	})
	predict, train := "http://"+s.PredictionAddresses()[0], "http://"+s.TrainingAddress()
	bulk := func() (list []map[string]any) {
		code, text := call(t, "POST", predict+"/predict/bulk/strict", `{"requests":[`+row+`,`+row+`]}`)
		var x struct {
			Predictions []map[string]any `json:"predictions"`
			Total       int              `json:"total_requests"`
		}
		if err := json.Unmarshal([]byte(text), &x); err != nil || code != 200 || x.Total != 2 ||
			len(x.Predictions) != 2 {
			t.Fatalf("%d %s %v", code, text, err)
		}
		return x.Predictions
	}
	cold := bulk()[0]
	if cold["ttft_ms"] != 10.0 || cold["last_model_load"] != nil || cold["model_type"] != "xgboost" ||
		!strings.HasSuffix(cold["predicted_at"].(string), "+00:00") {
		t.Errorf("cold: %v", cold)
	}
	if code, text := call(t, "POST", train+"/add_training_data_bulk", samples(30)); code != 202 ||
		text != `{"message":"Accepted 30 training samples."}` {
		t.Errorf("%d %s", code, text)
	}
	for end := time.Now().Add(time.Minute); bulk()[0]["ttft_ms"] != 7.0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never learned: %+v", s.Status())
		}
	}
	// A failed training keeps the models, and the predictor trains again.
	fail.Store(true)
	call(t, "POST", train+"/add_training_data_bulk", samples(5))
	for end := time.Now().Add(time.Minute); s.Status().Failed == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no training failed")
		}
	}
	if bulk()[0]["ttft_ms"] != 7.0 {
		t.Error("a failed training took the models away")
	}
	for _, c := range []struct {
		method, url, body string
		code              int
		want              string
	}{
		{"POST", predict + "/predict", row, 200, `"ttft_ms":7`},
		{"POST", predict + "/predict/bulk", `{"requests":[` + row + `]}`, 200, `"errors":[]`},
		{"GET", predict + "/status", "", 200, `"is_ready":true`},
		{"GET", predict + "/healthz", "", 200, "http-based-latency-predictor"},
		{"GET", predict + "/readyz", "", 200, `"ready"`},
		{"POST", predict + "/reload", "", 200, `"loaded":true`},
		{"GET", predict + "/", "", 200, "running"},
		{"GET", predict + "/metrics", "", 404, "Not Found"},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[]}`, 422, "too_short"},
		{"POST", predict + "/predict/bulk/strict", `{}`, 422, "Field required"},
		{"POST", predict + "/predict/bulk/strict", `[]`, 422, "json_invalid"},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[{}]}`, 422,
			`"loc":["body","requests",0,"kv_cache_percentage"]`},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[` + strings.Replace(row, "0.3", "1.3", 1) + `]}`, 422,
			"kv_cache_percentage"},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[` + strings.Replace(row, "900", "-1", 1) + `]}`, 422,
			"input_token_length"},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[` + strings.Replace(row, "900", "1.5", 1) + `]}`, 422,
			"int_from_float"},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[` + strings.Replace(row, "0.3", "NaN", 1) + `]}`, 422,
			"json_invalid"},
		{"POST", predict + "/predict/bulk/strict", `{"requests":[` + strings.Replace(row, "900", `"x"`, 1) + `]}`, 422,
			"type_error"},
		{"POST", train + "/add_training_data_bulk", `{"entries":[]}`, 202, "Accepted 0"},
		{"POST", train + "/add_training_data_bulk", `{"entries":[` + row + `]}`, 422, "actual_ttft_ms"},
		{"POST", train + "/predict", row, 200, `"ttft_prediction_bounds":[5.6,8.4]`},
		{"GET", train + "/data/status", "", 200, `"ensemble_active":false`},
		{"GET", train + "/model/download/info", "", 200, `"ttft_model_ready":true`},
		{"GET", train + "/model/ttft/xgb/json", "", 200, `[{"nodeid":0,"leaf":7}]`},
		{"GET", train + "/model/ttft/lgb/txt", "", 404, "not lightgbm"},
		{"GET", train + "/model/tpot/info", "", 200, `"exists":true`},
		{"GET", train + "/model/x/info", "", 404, "Unknown model: x"},
		{"GET", train + "/model/ttft_gated/download", "", 404, "not found"},
		{"GET", train + "/model/ttft/download", "", 200, "gbtree"},
		{"GET", train + "/models/list", "", 200, `"ttft_scaler":{"exists":false`},
		{"GET", train + "/model/export", "", 200, "\x1f\x8b"},
		{"GET", train + "/model/export/json", "", 200, "latency-model"},
		{"GET", train + "/debug/prefix_distribution", "", 200, "total_samples"},
		{"GET", train + "/metrics", "", 200, `training_samples_queue_total{model="ttft",queue_bucket="0"}`},
		{"POST", train + "/flush", `{"reason":"a test"}`, 200, `"metrics_cleared":true`},
		{"POST", train + "/flush", ``, 200, `"ttft_training_samples_flushed":0`},
	} {
		if code, text := call(t, c.method, c.url, c.body); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %.80s: %d %.300s; expected %d with %s", c.method, c.url, c.body, code, text, c.code, c.want)
		}
	}
}

// script returns a Library whose Python is a shell script.
func script(t *testing.T, text string) Library {
	t.Helper()
	return Library{Python: fakebin.Write(t, filepath.Join(t.TempDir(), "python"), "#!/bin/sh\n"+text)}
}

var aFit = core.Fit{Number: 1,
	Sets: []core.Set{{Name: core.ModelTTFT, Columns: []core.Column{{Name: "a", Type: "float"}}, Rows: []float32{1, 2},
		Targets: []float32{3, 4}, Objective: "reg:squarederror"}}}

// A trainer process that dies, hangs or writes nonsense results in an error.
func TestTrainerFails(t *testing.T) {
	t.Parallel()
	const hello = `echo '{"library":"xgboost 3.2.0","processor":"p"}'; `
	for name, c := range map[string]struct{ script, want string }{
		"dies":           {"echo no such module >&2; exit 1", "no such module"},
		"another":        {`echo '{"library":"xgboost 1.0"}'; cat > /dev/null`, "expected xgboost 3.2.0"},
		"hangs":          {hello + "exec sleep 60", "aborted"},
		"no JSON":        {hello + "echo hello; exec cat > /dev/null", "invalid character"},
		"another answer": {hello + `echo '{"number":7,"models":[]}'; exec cat > /dev/null`, "training 7"},
		"a huge model": {hello +
			`echo '{"number":1,"models":[{"name":"ttft","size":99999999999}]}'; exec cat > /dev/null`, "99999999999"},
		"a cut model": {hello +
			`echo '{"number":1,"models":[{"name":"ttft","size":100}]}'; echo short; exec cat > /dev/null`, "EOF"},
		"a refusal":       {hello + `echo '{"number":1,"error":"the label has a NaN"}'; exec cat > /dev/null`, "NaN"},
		"an endless line": {hello + "yes | tr -d '\\n'", "buffer full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := &Trainer{Library: script(t, c.script), Timeout: time.Minute}
			if name == "hangs" {
				tr.Timeout = 300 * time.Millisecond
			}
			defer tr.Close()
			if out := tr.Fit(context.Background(), aFit); out.Err == nil || !strings.Contains(out.Err.Error(), c.want) {
				t.Errorf("%v; expected %q", out.Err, c.want)
			}
		})
	}
}

// The real library's trees follow the data, also after the process was killed. In CI, and with
// WINDTUNNEL_TEST_XGBOOST set, the test installs the library. Elsewhere it is skipped if the library is missing.
func TestTrainer(t *testing.T) {
	t.Parallel()
	install := os.Getenv("CI") == "true" || os.Getenv("WINDTUNNEL_TEST_XGBOOST") != ""
	lib, err := Find(context.Background(), FindOptions{NoInstall: !install})
	switch {
	case err != nil && install:
		t.Fatal(err)
	case err != nil:
		t.Skipf("the library's trees were not tested: %v", err)
	}
	tr := &Trainer{Library: lib}
	defer tr.Close()
	o := core.DefaultOptions()
	o.TestRatio = 0
	m := core.New(o, nil)
	var list []core.Sample
	for i := range 400 {
		list = append(list, core.Sample{
			Features: core.Features{InputTokens: int64(10 * i), PodType: []string{"", "other"}[i%2]},
			TTFTMs:   float64(i + 1), TPOTMs: 5 + 5*float64(i%2)})
	}
	fx := new(core.Effects)
	m.Input(0, core.Samples{List: list}, fx)
	m.Advance(10*machine.Second, fx)
	first := tr.Fit(context.Background(), fx.List[0])
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	_ = tr.proc.cmd.Process.Kill()
	if out := tr.Fit(context.Background(), fx.List[0]); out.Err == nil {
		t.Error("a killed process answered")
	}
	again := tr.Fit(context.Background(), fx.List[0])
	if again.Err != nil || !bytes.Equal(first.Models[core.ModelTTFT], again.Models[core.ModelTTFT]) {
		t.Errorf("another process fits other trees: %v", again.Err)
	}
	m.Input(10*machine.Second, again, fx)
	if s := m.Status(); s.Failed != "" {
		t.Fatal(s.Failed)
	}
	var p core.Predictor
	for i, q := range p.Predict(m.Models(), []core.Features{{InputTokens: 1000}, {InputTokens: 3000, PodType: "other"}},
		nil) {
		want := []core.Prediction{{TTFTMs: 101, TPOTMs: 5}, {TTFTMs: 301, TPOTMs: 10}}[i]
		if d := q.TTFTMs - want.TTFTMs; d < -10 || d > 10 || q.TPOTMs < want.TPOTMs-.1 || q.TPOTMs > want.TPOTMs+.1 {
			t.Errorf("%v; expected about %v", q, want)
		}
	}
}
