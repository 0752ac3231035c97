package predict

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/live/predictor"
)

//go:embed constant.py
var constant string

const endpoints = 16

// trained returns models of 200 trees each, fitted to generated requests.
func trained(b *testing.B) *core.Machine {
	b.Helper()
	lib, err := predictor.Find(context.Background(), predictor.FindOptions{NoInstall: true})
	switch {
	case err != nil && os.Getenv("CI") == "true": // where the tests have installed it
		b.Fatal(err)
	case err != nil:
		b.Skip(err)
	}
	t := &predictor.Trainer{Library: lib}
	defer t.Close()
	o := core.DefaultOptions()
	m := core.New(o, nil)
	var list []core.Sample
	for i := range 4000 {
		d := machine.NewDraw(1, "bench", "sample", uint64(i))
		f := core.Features{KV: d.Float64(), InputTokens: int64(d.Intn(4000)), Running: int64(d.Intn(40)),
			PrefillTokens: int64(d.Intn(8000)), Prefix: d.Float64()}
		list = append(list, core.Sample{Features: f,
			TTFTMs: 10 + .03*float64(f.InputTokens)*(1-f.Prefix) + .01*float64(f.PrefillTokens) + 5*d.Float64(),
			TPOTMs: 5 + .2*float64(f.Running) + d.Float64()})
	}
	fx := new(core.Effects)
	m.Input(0, core.Samples{List: list}, fx)
	m.Advance(10*machine.Second, fx)
	m.Input(10*machine.Second, t.Fit(context.Background(), fx.List[0]), fx)
	if s := m.Status(); s.Trainings != 1 {
		b.Fatal(s.Failed)
	}
	return m
}

func rows() (out []core.Features) {
	for i := range endpoints {
		out = append(out, core.Features{KV: float64(i) / 20, InputTokens: 1500, Running: int64(3 * i % 17),
			Generated: 1, Prefix: float64(i%4) / 4, PrefillTokens: int64(700 * i % 5000)})
	}
	return out
}

// ask sends a question to a prediction server as the picker does.
func ask(b *testing.B, url string, question []byte) []byte {
	resp, err := http.Post(url, "application/json", bytes.NewReader(question))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// best returns how long each function takes: the shortest of many alternating short stretches, so that other load on
// the machine affects all alike.
func best(of ...func()) []time.Duration {
	out := make([]time.Duration, len(of))
	stretches, n := 400, 10
	if testing.Short() {
		stretches, n = 3, 5
	}
	for k := range stretches {
		for i, f := range of {
			began := time.Now()
			for range n {
				f()
			}
			if took := time.Since(began) / time.Duration(n); k == 0 || took < out[i] {
				out[i] = took
			}
		}
	}
	return out
}

// One decision over sixteen endpoints with predictions from the prediction server, compared with the same question to
// a bare Python server that answers without computing.
func BenchmarkSidecar(b *testing.B) {
	m := trained(b)
	s, err := predictor.Start(
		predictor.Options{Training: "127.0.0.1:0", Prediction: []string{"127.0.0.1:0"}, Machine: m})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop(context.Background())
	question, err := json.Marshal(core.Bulk{Requests: rows()})
	if err != nil {
		b.Fatal(err)
	}
	bare := exec.Command("python3", "-c", constant)
	out, err := bare.StdoutPipe()
	if err == nil {
		err = bare.Start()
	}
	if err != nil {
		b.Skip(err)
	}
	defer func() { _ = bare.Process.Kill(); _ = bare.Wait() }()
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	python := fmt.Sprintf("http://127.0.0.1:%s%s", strings.TrimSpace(port), core.PathPredict)
	ours := "http://" + s.PredictionAddresses()[0]
	decide := decision(b, &picker.PredictorService{Prediction: []string{ours}}, func(n *picker.Need, a *picker.Answer) {
		var body []byte
		if body, a.Err = n.Body(); a.Err == nil {
			a.Value = ask(b, n.URL, body)
		}
	})
	read := func(url string) func() {
		return func() {
			if _, err := core.ReadPredictions(ask(b, url, question), endpoints); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		t := best(decide, read(ours+core.PathPredict), read(python))
		b.ReportMetric(float64(t[0].Nanoseconds())/1e3, "µs/decision")
		b.ReportMetric(float64(t[1].Nanoseconds())/1e3, "µs/question")
		b.ReportMetric(float64(t[2].Nanoseconds())/1e3, "µs/python")
		gate.AtMost(b, float64(t[0])/float64(t[2]), "of-python", 2)
	}
}

const config16 = `
plugins:
- {type: predicted-latency-producer, parameters: {streamingMode: true}}
- type: slo-headroom-tier-filter
- type: latency-scorer
- type: max-score-picker
`

// decision returns a function that decides over sixteen endpoints, with answers to the plug-ins' questions.
func decision(b *testing.B, service *picker.PredictorService, answer func(n *picker.Need, a *picker.Answer)) func() {
	b.Helper()
	cfg, err := config.Read("epp.yaml", []byte(config16))
	if err != nil {
		b.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{Predictor: service})
	if err != nil {
		b.Fatal(err)
	}
	var list []*picker.Endpoint
	for i := range endpoints {
		list = append(list, picker.NewEndpoint("d", fmt.Sprintf("w%02d", i), fmt.Sprintf("10.0.0.%d", i+1), "8000",
			nil))
	}
	p.Pool().Set(list)
	for i := range list {
		p.Pool().Update(0, i, picker.Metrics{Running: int64(i), KVUsage: float64(i) / 20})
	}
	text := []byte(`{"model":"m","prompt":"` + strings.Repeat("word ", 800) + `","stream":true}`)
	d := &picker.Decision{}
	n := uint64(0)
	return func() {
		n++
		r, fault := p.NewRequest(nil, text, true, n)
		if fault == nil {
			_, fault = p.Prepare(0, r)
		}
		if fault != nil {
			b.Fatal(fault)
		}
		var answers []picker.Answer
		for _, need := range p.Consult(0, r, p.Pool().View(), nil) {
			a := picker.AnswerTo(&need)
			answer(&need, &a)
			answers = append(answers, a)
		}
		p.Read(r, answers)
		d = p.Pick(0, r, p.Pool().View(), answers, d)
		if service != nil && p.LatencyPredictors()[0].Forecast(d, d.PrimaryProfile().Picked[0]) == nil {
			b.Fatal("a decision without predictions")
		}
		p.Commit(0, d)
		p.Release(0, d)
	}
}

// One decision over sixteen endpoints, with and without trees in the core.
func BenchmarkTrees(b *testing.B) {
	m := trained(b)
	var eval core.Predictor
	with := decision(b, &picker.PredictorService{Prediction: []string{"http://p"}},
		func(n *picker.Need, a *picker.Answer) {
			for _, x := range eval.Predict(m.Models(), n.Subject.([]core.Features), nil) {
				a.Latencies = append(a.Latencies, picker.Latency(x))
			}
		})
	without := decision(b, nil, nil)
	for b.Loop() {
		t := best(with, without)
		b.ReportMetric(float64(t[0].Nanoseconds())/1e3, "µs/decision")
		b.ReportMetric(float64(t[1].Nanoseconds())/1e3, "µs/none")
		gate.AtMost(b, float64(t[0])/float64(t[1]), "of-none", 3)
	}
}
