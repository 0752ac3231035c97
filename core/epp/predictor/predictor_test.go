package predictor

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
)

// leaf returns a model of one leaf and so many columns, whose sum is .5 more.
func leaf(columns int, value float64) []byte {
	return fmt.Appendf(nil, `{"learner":{"gradient_booster":{"name":"gbtree","model":{"trees":[{"left_children":[-1],`+
		`"right_children":[-1],"split_indices":[0],`+
		`"split_conditions":[%v],"default_left":[0],"split_type":[0]}]}},`+
		`"learner_model_param":{"base_score":"[5E-1]","num_feature":"%d"},`+
		`"objective":{"name":"reg:squarederror"}}}`, value, columns)
}

// The columns are the real trainer's, in its order.
func TestColumns(t *testing.T) {
	o := DefaultOptions()
	name := func(list []Column) (out []string) {
		for _, c := range list {
			out = append(out, c.Name)
		}
		return out
	}
	ttft := []string{"is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting",
		"num_request_running", "prefill_tokens_in_flight", "decode_tokens_in_flight",
		"encoder_matched_size", "encoder_input_size", "prefix_cache_score", "effective_input_tokens",
		"prefill_score_bucket", "pod_type_cat"}
	tpot := []string{"is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting",
		"num_request_running", "prefill_tokens_in_flight", "decode_tokens_in_flight",
		"num_tokens_generated", "pod_type_cat"}
	if d := cmp.Diff(ttft, name(o.Columns(TTFT, false))); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(tpot, name(o.Columns(TPOT, false))); d != "" {
		t.Error(d)
	}
	f := Features{KV: .25, InputTokens: 1000, Waiting: 3, Running: 7, Generated: 9, Prefix: .3, PodType: "decode",
		PrefillTokens: 11, DecodeTokens: 12, EncoderMatched: 13, EncoderInput: 14}
	types := []string{"", "prefill", "decode"}
	if d := cmp.Diff([]float32{1, .25, 1000, 3, 7, 11, 12, 13, 14, .3, 700, 1, 2},
		o.row(nil, &f, TTFT, false, types)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float32{.25, 1000, 7, 11, 12, 9, 2}, o.row(nil, &f, TPOT, true, types)); d != "" {
		t.Error(d)
	}
	f.PodType = "unknown"
	if row := o.row(nil, &f, TPOT, false, types); !math.IsNaN(float64(row[8])) {
		t.Errorf("a pod type that nobody knows is %v; expected a missing value", row[8])
	}
	for _, unqueued := range []bool{false, true} {
		for _, target := range []Target{TTFT, TPOT} {
			if a, b := len(o.Columns(target, unqueued)), len(o.row(nil, &f, target, unqueued, types)); a != b {
				t.Errorf("%v: %d names and %d values", target, a, b)
			}
		}
	}
}

func sample(waiting int64, ttft, tpot float64) Sample {
	return Sample{Features: Features{Waiting: waiting, InputTokens: 100}, TTFTMs: ttft, TPOTMs: tpot}
}

// A machine learns ten seconds after it began, and every interval after that, if
// there is anything new; what could not be fitted leaves the old models.
func TestTraining(t *testing.T) {
	o := DefaultOptions()
	o.TestRatio = 0
	m := New(o, nil)
	fx := new(Effects)
	var p Predictor
	predict := func(f Features) Prediction { return p.Predict(m.Models(), []Features{f}, nil)[0] }
	if got := predict(Features{}); got != (Prediction{ColdMs, ColdMs}) {
		t.Fatalf("before the first training %v; expected 10 ms", got)
	}
	var list []Sample
	for i := range 10 {
		list = append(list, sample(0, float64(i+1), 0))
	}
	m.Input(machine.Second, Samples{list}, fx)
	if at, _ := m.Next(); at != 10*machine.Second || fx.Len() != 0 {
		t.Fatalf("training at %v, %d fits", at, fx.Len())
	}
	m.Advance(11*machine.Second, fx)
	if fx.Len() != 1 || fx.List[0].At != 10*machine.Second || len(fx.List[0].Sets) != 1 ||
		len(fx.List[0].Sets[0].Targets) != 10 || fx.List[0].Sets[0].Name != ModelTTFT {
		t.Fatalf("asked %+v", fx.List)
	}
	if _, ok := m.Next(); ok {
		t.Error("it trains again before the answer")
	}
	fit := fx.List[0]
	fx.Reset()
	m.Input(12*machine.Second, Fitted{Number: fit.Number, Err: errors.New("no")}, fx)
	if s := m.Status(); s.Failed != "no" || s.Trainings != 0 {
		t.Errorf("%+v", s)
	}
	m.Advance(60*machine.Second, fx)
	if fx.Len() != 0 {
		t.Errorf("nothing is new, and it asked %+v", fx.List)
	}
	m.Input(61*machine.Second, Samples{[]Sample{sample(0, 1, 1)}}, fx)
	m.Advance(75*machine.Second, fx)
	if fx.Len() != 1 {
		t.Fatalf("%d fits", fx.Len())
	}
	m.Input(75*machine.Second,
		Fitted{Number: fx.List[0].Number, Library: "l", Models: map[Name][]byte{ModelTTFT: leaf(13, 3)}}, fx)
	if got := predict(Features{}); got != (Prediction{3.5, ColdMs}) {
		t.Errorf("%v", got)
	}
	if s := m.Status(); s.Trainings != 1 || s.TrainedAt != 75*machine.Second || s.Failed != "" {
		t.Errorf("%+v", s)
	}
	for name, bad := range map[Name][]byte{ModelTTFT: leaf(12, 3), ModelTPOT: []byte("{}"), "else": leaf(13, 1)} {
		if _, err := m.Models().with(podTypes, "l", map[Name][]byte{name: bad}); err == nil {
			t.Errorf("%s: %s was taken", name, bad)
		}
	}
}

// With enough samples of both kinds, requests that find nobody waiting have models of
// their own; a prediction below 0 is 0.
func TestGatedModels(t *testing.T) {
	o := DefaultOptions()
	o.TestRatio, o.MinSplit, o.Interval = 0, 2, machine.Second
	m := New(o, nil)
	fx := new(Effects)
	var list []Sample
	for i := range 20 {
		list = append(list, sample(int64(i%2)*3, 10, 5))
	}
	m.Input(0, Samples{list}, fx)
	m.Advance(machine.Second, fx)
	sets := fx.List[0].Sets
	if len(sets) != 6 || len(sets[2].Targets) != 10 || len(sets[0].Targets) != 20 || len(sets[2].Columns) != 11 {
		t.Fatalf("%d sets", len(sets))
	}
	models := map[Name][]byte{}
	for i, s := range sets {
		models[s.Name] = leaf(len(s.Columns), float64(i*10-30))
	}
	m.Input(machine.Second, Fitted{Number: 1, Library: "l", Models: models}, fx)
	var p Predictor
	got := p.Predict(m.Models(), []Features{{Waiting: 0}, {Waiting: 3}}, nil)
	if want := []Prediction{{0, 10.5}, {.5, 20.5}}; !slices.Equal(got, want) {
		t.Errorf("%v; expected %v", got, want)
	}
	// What was saved is read again, and predicts the same.
	text, err := m.Models().Save()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(text)
	if err != nil || !slices.Equal(p.Predict(again, []Features{{Waiting: 0}, {Waiting: 3}}, nil), got) ||
		!again.Gated() {
		t.Errorf("%v %v", err, again)
	}
	for _, x := range [][2]string{{modelFormat, "else"}, {`"podTypes":["",`, `"podTypes":["x",`}, {`"ttft":`, `"tft":`},
		{`"objective":"mean"`, `"objective":"median"`}} {
		if _, err := Load([]byte(strings.Replace(string(text), x[0], x[1], 1))); err == nil {
			t.Errorf("%s was read", x[1])
		}
	}
}

// Each bucket keeps its newest samples, whatever comes in others.
func TestBuckets(t *testing.T) {
	o := DefaultOptions()
	o.TestRatio, o.BucketSize = 0, 3
	m := New(o, nil)
	for i := range 10 {
		m.take(sample(0, float64(i+1), 0))
	}
	m.take(sample(20, 99, 0))
	var got []float64
	m.EachTTFT(func(s *Sample) { got = append(got, s.TTFTMs) })
	if want := []float64{8, 9, 10, 99}; !slices.Equal(got, want) {
		t.Errorf("%v; expected %v", got, want)
	}
	m.Input(0, Flush{Train: true}, new(Effects))
	if s := m.Status(); s.Train != [2]int{} {
		t.Errorf("after a flush %v", s.Train)
	}
}

func FuzzReadPredictions(f *testing.F) {
	f.Add([]byte(`{"predictions":[{"ttft_ms":1,"tpot_ms":2}]}`), 1)
	f.Add([]byte(`{"predictions":[{"ttft_ms":-1,"tpot_ms":2},null]}`), 2)
	f.Fuzz(func(t *testing.T, text []byte, rows int) {
		list, err := ReadPredictions(text, rows&15)
		if err == nil && len(list) != rows&15 {
			t.Errorf("%d predictions for %d rows", len(list), rows&15)
		}
		for _, p := range list {
			if p.Check() != nil {
				t.Errorf("%v", p)
			}
		}
		if quick, ok := quickPredictions(text, rows&15); ok {
			if slow, err := readPredictions(text, rows&15); err != nil || !slices.Equal(quick, slow) {
				t.Errorf("quickly %v; else %v, %v", quick, slow, err)
			}
		}
	})
}

// What both clients write, ours and llm-d's.
var questions = []string{
	`{"requests":[{"kv_cache_percentage":0.3,"input_token_length":900,"num_request_waiting":0,` +
		`"num_request_running":4,"num_tokens_generated":1,"prefix_cache_score":0,"prefill_tokens_in_flight":70,` +
		`"decode_tokens_in_flight":0,"encoder_matched_size":0,"encoder_input_size":0}]}`,
	`{"requests":[{"kv_cache_percentage":0.25,"input_token_length":128,"num_request_waiting":3,` +
		`"num_request_running":7,"num_tokens_generated":1,"prefix_cache_score":0.5,"encoder_input_size":20,` +
		`"encoder_matched_size":10,"pod_type":"decode","prefill_tokens_in_flight":512,` +
		`"decode_tokens_in_flight":0}]}`,
}

// ReadRows reads messages in the form that both clients write, and reads them as encoding/json does.
func TestReadRows(t *testing.T) {
	for _, text := range questions {
		got, ok := ReadRows([]byte(text), "requests", false)
		want := struct{ Requests []Sample }{}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Requests, got); !ok || d != "" {
			t.Errorf("%v %s", ok, d)
		}
		if _, ok := ReadRows([]byte(text), "requests", true); ok {
			t.Error("a row was taken for a sample")
		}
	}
}

func FuzzReadRows(f *testing.F) {
	for _, text := range questions {
		f.Add([]byte(text), false)
	}
	f.Add([]byte(`{"entries":[{"kv_cache_percentage":0.3,"input_token_length":900,"num_request_waiting":0,`+
		`"num_request_running":4,"num_tokens_generated":0,"actual_ttft_ms":17.25,"actual_tpot_ms":0,`+
		`"prefix_cache_score":0,"encoder_input_size":0,"encoder_matched_size":0,"prefill_tokens_in_flight":0,`+
		`"decode_tokens_in_flight":0,"timestamp":"2026-08-22T06:49:22.123456789+03:00"}]}`), true)
	f.Fuzz(func(t *testing.T, text []byte, times bool) {
		field := map[bool]string{false: "requests", true: "entries"}[times]
		quick, ok := ReadRows(text, field, times)
		if !ok {
			return
		}
		slow := map[string][]Sample{}
		if err := json.Unmarshal(text, &slow); err != nil || len(quick)+len(slow[field]) > 0 &&
			!slices.Equal(quick, slow[field]) {
			t.Errorf("quickly %v; else %v, %v", quick, slow, err)
		}
	})
}

// Sixteen rows, as a decision over so many endpoints has them.
func BenchmarkReadRows(b *testing.B) {
	var x Bulk
	for i := range 16 {
		x.Requests = append(x.Requests,
			Features{KV: float64(i) / 20, InputTokens: 1500, Running: int64(i), Generated: 1, Prefix: .25,
				PrefillTokens: 700})
	}
	text, err := json.Marshal(x)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("own", func(b *testing.B) {
		for b.Loop() {
			if list, ok := ReadRows(text, "requests", false); !ok || len(list) != 16 {
				b.Fatal("not read")
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		for b.Loop() {
			if err := json.Unmarshal(text, &struct{ Requests []Sample }{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
