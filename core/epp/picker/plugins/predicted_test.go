package plugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// forecast is a picker whose predictor answers as the test sets it.
type forecast struct {
	t *testing.T
	*picker.Picker
	n uint64
}

func newForecast(t *testing.T, producer, rest string, change ...func(*picker.PredictorService)) *forecast {
	t.Helper()
	text := "plugins:\n- {type: predicted-latency-producer, parameters: {" + producer + "}}\n" + rest
	cfg, err := config.Read("epp.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	service := &picker.PredictorService{Prediction: []string{"http://p"}, Training: "http://t"}
	for _, f := range change {
		f(service)
	}
	p, err := picker.New(cfg, Builtin(), picker.Options{Detail: true, Predictor: service})
	if err != nil {
		t.Fatal(err)
	}
	var list []*picker.Endpoint
	for i, name := range []string{"a", "b", "c"} {
		list = append(list, picker.NewEndpoint("d", name, fmt.Sprintf("127.0.0.%d", i+1), "1",
			map[string]string{"role": []string{"", "prefill", "decode"}[i]}))
	}
	p.Pool().Set(list)
	for i := range list {
		p.Pool().Update(0, i, picker.Metrics{Running: 3, KVUsage: .5})
	}
	return &forecast{t: t, Picker: p}
}

// ask decides about a request with the given objectives and predictions.
func (f *forecast) ask(now machine.Time, ttft, tpot string, latencies []picker.Latency,
	more ...header.Header) *picker.Decision {
	f.t.Helper()
	f.n++
	head := append(header.List{{Name: ":path", Value: "/v1/completions"}}, more...)
	// the newer name, and the older
	for name, v := range map[string]string{"x-llm-d-slo-ttft-ms": ttft, "x-slo-tpot-ms": tpot} {
		if v != "" {
			head = append(head, header.Header{Name: name, Value: v})
		}
	}
	r, fault := f.NewRequest(head, []byte(`{"model":"m","prompt":"hello","stream":true}`), true, f.n)
	if fault == nil {
		_, fault = f.Prepare(now, r)
	}
	if fault != nil {
		f.t.Fatal(fault)
	}
	needs := f.Consult(now, r, f.Pool().View(), nil)
	if len(needs) != 1 || len(needs[0].Endpoints) != 3 {
		f.t.Fatalf("asked %+v", needs)
	}
	a := picker.AnswerTo(&needs[0])
	a.Latencies = latencies
	d := f.Pick(now, r, f.Pool().View(), []picker.Answer{a}, nil)
	if d.Err == nil {
		f.Commit(now, d)
	}
	return d
}

func scores(d *picker.Decision) string {
	if d.Err != nil {
		return d.Err.Error()
	}
	return strings.ReplaceAll(d.ScoreList(), ",", " ")
}

const scorerOnly = "- {type: latency-scorer, parameters: {headroomSelectionStrategy: %s}}\n- type: max-score-picker\n"

// What latency-scorer makes of predictions, for each strategy and each way in which
// endpoints may miss the objectives.
func TestLatencyScorer(t *testing.T) {
	ms := func(v ...float64) (out []picker.Latency) {
		for i := 0; i < len(v); i += 2 {
			out = append(out, picker.Latency{TTFTMs: v[i], TPOTMs: v[i+1]})
		}
		return out
	}
	for _, c := range []struct {
		name, strategy, ttft, tpot string
		busy                       int // requests that run at each endpoint
		latencies                  []picker.Latency
		want                       string
	}{
		{"least leaves the most to others", "least", "100", "20", 0, ms(10, 10, 50, 10, 90, 10),
			"d/a=0.01 d/b=0.51 d/c=1"},
		{"most has the most to spare", "most", "100", "20", 0, ms(10, 10, 50, 10, 90, 10), "d/a=1 d/b=0.51 d/c=0.01"},
		{"who misses the objectives is not scored", "most", "100", "20", 0, ms(10, 10, 50, 10, 500, 10),
			"d/a=1 d/b=0.01 d/c=0"},
		{"eighty for the first token, twenty for others", "most", "100", "20", 0, ms(10, 19, 90, 10, 90, 19),
			"d/a=0.81 d/b=0.21 d/c=0.01"},
		{"all miss, all idle: the least late", "most", "100", "20", 0, ms(200, 10, 300, 10, 400, 10),
			"d/a=1 d/b=0.51 d/c=0.01"},
		{"all miss and are busy: tokens alone are late", "most", "100", "20", 1, ms(50, 30, 300, 10, 400, 40),
			"d/a=0.51 d/b=0 d/c=0"},
		{"all miss and are busy: the first token alone is late", "least", "100", "20", 1, ms(150, 10, 300, 10, 400, 40),
			"d/a=1 d/b=0.01 d/c=0"},
		{"no objective: the quickest", "least", "", "", 0, ms(150, 10, 300, 10, 400, 10), "d/a=1 d/b=0.41 d/c=0.01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForecast(t, "streamingMode: true", fmt.Sprintf(scorerOnly, c.strategy))
			for range c.busy {
				for i := range 3 {
					easy := ms(1000, 1000, 1000, 1000, 1000, 1000)
					easy[i] = picker.Latency{TTFTMs: 1, TPOTMs: 1}
					f.ask(0, "100", "20", easy)
				}
			}
			got := strings.NewReplacer("a=", "d/a=", "b=", "d/b=", "c=",
				"d/c=").Replace(scores(f.ask(0, c.ttft, c.tpot, c.latencies)))
			if got != c.want {
				t.Errorf("%s; expected %s", got, c.want)
			}
		})
	}
}

// A new request's limit per token is no higher than the tightest objective of what
// runs there, but where one of these has none.
func TestRunningObjectives(t *testing.T) {
	f := newForecast(t, "streamingMode: true, sloBufferFactor: 2", fmt.Sprintf(scorerOnly, "most"))
	quick := []picker.Latency{{TTFTMs: 1, TPOTMs: 1}, {TTFTMs: 99, TPOTMs: 9}, {TTFTMs: 99, TPOTMs: 9}}
	headroom := func() float64 {
		d := f.ask(0, "100", "50", quick)
		return *d.Explain().Profiles[0].Endpoints[0].Predicted.TPOTHeadroomMs
	}
	if got := headroom(); got != 99 { // 2 × 50 − 1
		t.Errorf("alone: headroom %v; expected 99", got)
	}
	tight := f.ask(0, "100", "10", quick)
	if got := headroom(); got != 19 { // 2 × 10 − 1
		t.Errorf("beside a tight one: %v; expected 19", got)
	}
	for i := 1; i < 3; i++ { // so that nobody is idle
		easy := []picker.Latency{{TTFTMs: 1000, TPOTMs: 1000}, {TTFTMs: 1000, TPOTMs: 1000},
			{TTFTMs: 1000, TPOTMs: 1000}}
		easy[i] = picker.Latency{TTFTMs: 1, TPOTMs: 1}
		f.ask(0, "100", "50", easy)
	}
	free := f.ask(0, "100", "",
		[]picker.Latency{{TTFTMs: 99, TPOTMs: .1}, {TTFTMs: 1, TPOTMs: 500}, {TTFTMs: 1, TPOTMs: 500}})
	if free.Destination() != "127.0.0.1:1" {
		t.Fatalf("it went to %s", free.Destination())
	}
	if got := headroom(); got != 99 {
		t.Errorf("beside one without: %v; expected 99", got)
	}
	f.Release(0, free)
	f.Release(0, tight)
	if got := headroom(); got != 99 {
		t.Errorf("when both are over: %v; expected 99", got)
	}
	again := f.ask(0, "100", "10", quick)
	_ = again
	if d := f.ask(machine.Time(301)*machine.Second, "100", "50", quick); d.Err != nil {
		t.Fatal(d.Err)
	}
	if d := f.ask(machine.Time(301)*machine.Second, "100", "50",
		quick); *d.Explain().Profiles[0].Endpoints[0].Predicted.TPOTHeadroomMs != 99 {
		t.Error("a request that took longer than contextTTL still counts")
	}
}

// latency-slo-admitter refuses what can be shed where nobody is in time.
func TestLatencySLOAdmitter(t *testing.T) {
	f := newForecast(t, "streamingMode: true", "- type: latency-slo-admitter\n"+fmt.Sprintf(scorerOnly, "most"))
	f.SetObjects(picker.Objects{Objectives: map[string]int{"shed": -1}})
	shed := header.Header{Name: "x-llm-d-inference-objective", Value: "shed"}
	// as late as the objective is not in time
	late := []picker.Latency{{TTFTMs: 500, TPOTMs: 1}, {TTFTMs: 100, TPOTMs: 1}, {TTFTMs: 900, TPOTMs: 1}}
	if d := f.ask(0, "100", "20", late, shed); d.Err == nil || d.Err.Status != 500 ||
		!strings.Contains(d.Err.Message, "no valid endpoint available to serve the request") {
		t.Errorf("%v", d.Err)
	}
	for name, d := range map[string]*picker.Decision{
		"one is in time":      f.ask(0, "101", "20", late, shed),
		"it cannot be shed":   f.ask(0, "100", "20", late),
		"it has no objective": f.ask(0, "", "", late, shed),
	} {
		if d.Err != nil {
			t.Errorf("%s: %v", name, d.Err)
		}
	}
	f.Pool().Update(0, 0, picker.Metrics{Running: 3, KVUsage: .01})
	if d := f.ask(0, "100", "20", late, shed); d.Err != nil {
		t.Errorf("one is nearly empty: %v", d.Err)
	}
}

// What an endpoint that only prefills would take for a token does not matter, and
// without streams nobody's does.
func TestTokensThatDoNotMatter(t *testing.T) {
	slow := []picker.Latency{{TTFTMs: 10, TPOTMs: 500}, {TTFTMs: 10, TPOTMs: 500}, {TTFTMs: 10, TPOTMs: 500}}
	f := newForecast(t, "streamingMode: true, endpointRoleLabel: role", fmt.Sprintf(scorerOnly, "most"))
	if got := scores(f.ask(0, "100", "20", slow)); got != "a=0 b=0.51 c=0" {
		t.Errorf("with roles: %s", got)
	}
	f = newForecast(t, "", fmt.Sprintf(scorerOnly, "most"))
	if got := scores(f.ask(0, "100", "20", slow)); got != "a=0.51 b=0.51 c=0.51" {
		t.Errorf("without streams: %s", got)
	}
}

// Samples hold features and measured times, and wait for the next whole second.
func TestSamples(t *testing.T) {
	f := newForecast(t, "", fmt.Sprintf(scorerOnly, "most")) // of an answer that is over
	d := f.ask(machine.Second/2, "100", "20",
		[]picker.Latency{{TTFTMs: 1, TPOTMs: 1}, {TTFTMs: 99, TPOTMs: 1}, {TTFTMs: 99, TPOTMs: 1}})
	r := f.NewResponse(machine.Second/2, d, header.Of(":status", "200", "content-type", "text/event-stream"))
	r.Read(machine.Second/2+20*machine.Millisecond, []byte("data: {}\n\n"), false)
	r.RunBodyHooks(machine.Second/2 + 20*machine.Millisecond)
	if f.SendAt() != machine.Never {
		t.Error("there is a sample before the end")
	}
	r.Read(machine.Second/2+70*machine.Millisecond, []byte("data: [DONE]\n\n"), true)
	r.RunBodyHooks(machine.Second/2 + 70*machine.Millisecond)
	if f.SendAt() != machine.Second {
		t.Fatalf("samples leave at %v", f.SendAt())
	}
	needs := f.Send(machine.Second)
	list := needs[0].Subject.([]predictor.Sample)
	if len(list) != 1 || list[0].TTFTMs != 70 || list[0].TPOTMs != 0 || list[0].Generated != 0 || list[0].KV != .5 ||
		list[0].Running != 0 || needs[0].URL != "http://t/add_training_data_bulk" {
		t.Errorf("%+v", needs)
	}
	if f.SendAt() != machine.Never {
		t.Error("they leave twice")
	}
}

// The servers are looked at when it starts and each minute, as the real client does,
// beside the samples.
func TestPolls(t *testing.T) {
	f := newForecast(t, "", fmt.Sprintf(scorerOnly, "most"),
		func(s *picker.PredictorService) { s.Poll = 60 * machine.Second })
	asked := func(now machine.Time) string {
		var out []string
		for _, n := range f.Send(now) {
			out = append(out, n.Method+" "+n.URL)
		}
		return strings.Join(out, " ")
	}
	if at, got := f.SendAt(), asked(0); at != 0 || got != "GET http://p/status GET http://t/model/download/info" {
		t.Errorf("at %v %s", at, got)
	}
	d := f.ask(machine.Second/2, "100", "20",
		[]picker.Latency{{TTFTMs: 1, TPOTMs: 1}, {TTFTMs: 99, TPOTMs: 1}, {TTFTMs: 99, TPOTMs: 1}})
	r := f.NewResponse(machine.Second/2, d, header.Of(":status", "200"))
	r.Read(machine.Second/2+machine.Millisecond, []byte("{}"), true)
	r.RunBodyHooks(machine.Second/2 + machine.Millisecond)
	if at, got := f.SendAt(),
		asked(machine.Second); at != machine.Second || got != "POST http://t/add_training_data_bulk" {
		t.Errorf("at %v %s", at, got)
	}
	if at, got := f.SendAt(), asked(60*machine.Second); at != 60*machine.Second ||
		got != "GET http://p/status GET http://t/model/download/info GET http://t/model/ttft/xgb/json GET "+
			"http://t/model/tpot/xgb/json" {
		t.Errorf("at %v %s", at, got)
	}
	if f.SendAt() != 120*machine.Second {
		t.Errorf("then at %v", f.SendAt())
	}
}
