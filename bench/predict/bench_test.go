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
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	core "github.com/windtunnel/windtunnel/core/predictor"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/live/predictor"
)

//go:embed constant.py
var constant string

const endpoints = 16

// trained are models of 200 trees each, fitted to made-up requests.
func trained(b *testing.B) *core.Machine {
	b.Helper()
	lib, err := predictor.Find(context.Background(), predictor.FindOptions{NoInstall: true})
	if err != nil {
		b.Skip(err)
	}
	t := &predictor.Trainer{Library: lib}
	defer t.Close()
	o := core.DefaultOptions()
	m := core.New(o, nil)
	var list []core.Sample
	for i := range 4000 {
		d := machine.NewDraw(1, "bench", "sample", uint64(i))
		f := core.Features{KV: d.Float64(), InputTokens: int64(d.Intn(4000)), Running: int64(d.Intn(40)), PrefillTokens: int64(d.Intn(8000)), Prefix: d.Float64()}
		list = append(list, core.Sample{Features: f, TTFTMs: 10 + .03*float64(f.InputTokens)*(1-f.Prefix) + .01*float64(f.PrefillTokens) + 5*d.Float64(), TPOTMs: 5 + .2*float64(f.Running) + d.Float64()})
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
		out = append(out, core.Features{KV: float64(i) / 20, InputTokens: 1500, Running: int64(3 * i % 17), Generated: 1, Prefix: float64(i%4) / 4, PrefillTokens: int64(700 * i % 5000)})
	}
	return out
}

// perCall is how long a question takes on a connection that is there, the least of
// several stretches.
func perCall(b *testing.B, url string, question []byte) time.Duration {
	b.Helper()
	best := time.Hour
	n := 400
	if testing.Short() {
		n = 10
	}
	for range 5 {
		began := time.Now()
		for range n {
			resp, err := http.Post(url, "application/json", bytes.NewReader(question))
			if err != nil {
				b.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil {
				_, err = core.ReadPredictions(text, endpoints)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		best = min(best, time.Since(began)/time.Duration(n))
	}
	return best
}

// Predictions for sixteen endpoints over HTTP, beside a bare Python server that answers
// without looking.
func BenchmarkSidecar(b *testing.B) {
	s, err := predictor.Start(predictor.Options{Training: "127.0.0.1:0", Prediction: []string{"127.0.0.1:0"}, Machine: trained(b)})
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
	for b.Loop() {
		ours := perCall(b, "http://"+s.PredictionAddresses()[0]+core.PathPredict, question)
		theirs := perCall(b, fmt.Sprintf("http://127.0.0.1:%s%s", strings.TrimSpace(port), core.PathPredict), question)
		b.ReportMetric(float64(ours.Microseconds()), "µs/question")
		gate.AtMost(b, float64(ours)/float64(theirs), "of-python", 2)
	}
}

const config16 = `
plugins:
- {type: predicted-latency-producer, parameters: {streamingMode: true}}
- type: slo-headroom-tier-filter
- type: latency-scorer
- type: max-score-picker
`

// One decision over sixteen endpoints, with trees in the core and without.
func BenchmarkTrees(b *testing.B) {
	m := trained(b)
	decide := func(service *picker.PredictorService) func() {
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
			list = append(list, picker.NewEndpoint("d", fmt.Sprintf("w%02d", i), fmt.Sprintf("10.0.0.%d", i+1), "8000", nil))
		}
		p.Pool().Set(list)
		for i := range list {
			p.Pool().Update(0, i, picker.Metrics{Running: int64(i), KVUsage: float64(i) / 20})
		}
		text := []byte(`{"model":"m","prompt":"` + strings.Repeat("word ", 800) + `","stream":true}`)
		var eval core.Predictor
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
				for _, x := range eval.Predict(m.Models(), need.Subject.([]core.Features), nil) {
					a.Latencies = append(a.Latencies, picker.Latency(x))
				}
				answers = append(answers, a)
			}
			d = p.Pick(0, r, p.Pool().View(), answers, d)
			p.Commit(0, d)
			p.Release(0, d)
		}
	}
	with, without := decide(&picker.PredictorService{Prediction: []string{"http://p"}}), decide(nil)
	each := func(f func()) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			for range 200 {
				f()
			}
			best = min(best, time.Since(began)/200)
		}
		return best
	}
	for b.Loop() {
		x, y := each(with), each(without)
		b.ReportMetric(float64(x.Nanoseconds())/1e3, "µs/decision")
		gate.AtMost(b, float64(x)/float64(y), "of-none", 3)
	}
}
