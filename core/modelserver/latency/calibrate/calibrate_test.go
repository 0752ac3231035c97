package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// server is our own model server's engine on the clock of the client.
type server struct {
	t      *testing.T
	e      *engine.Engine
	now    machine.Time
	id     engine.RequestID
	prompt [][]uint64     // of the last probe
	away   machine.Time   // that a request takes to come, and a token to go
	jitter func() float64 // that a token takes longer to go, in nanoseconds
}

func (s *server) play(p Probe) Result {
	s.now = s.now.Add(machine.Second)
	if !p.Again {
		s.prompt = nil
		for range p.Requests {
			s.id++
			var hashes []uint64
			for i := range p.Prompt / 16 {
				hashes = append(hashes, uint64(s.id)<<32|uint64(i+1))
			}
			s.prompt = append(s.prompt, hashes)
		}
	}
	var fx engine.Effects
	first := s.id + 1
	for i := range p.Requests {
		s.id++
		s.e.Input(s.now, &engine.Submit{ID: s.id, PromptTokens: p.Prompt, Hashes: s.prompt[i], MaxTokens: p.Tokens,
			IgnoreEOS: true, Interest: engine.EveryToken}, &fx)
	}
	r := Result{Arrived: make([][]machine.Time, p.Requests+len(p.Later))}
	begun := s.now
	later := p.Later
	for {
		for i := range fx.List {
			f := &fx.List[i]
			if f.Request < first {
				continue
			}
			list := &r.Arrived[f.Request-first]
			add := func(at machine.Time) { *list = append(*list, at-begun+2*s.away+machine.Time(s.jitter())) }
			switch f.Kind {
			case engine.PrefillStarted:
				r.Cached = int(f.Count)
			case engine.FirstToken:
				add(f.At)
			case engine.Tokens:
				for k := range int(f.Count) {
					add(f.Schedule.End(k + 1))
				}
			}
		}
		fx.Reset()
		at, more := s.e.Next()
		if len(later) > 0 && (!more || begun+later[0].At <= at) {
			s.id++
			s.now = begun + later[0].At
			s.e.Input(s.now, &engine.Submit{ID: s.id, PromptTokens: later[0].Prompt, MaxTokens: later[0].Tokens,
				IgnoreEOS: true, Interest: engine.EveryToken}, &fx)
			r.Sent, later = append(r.Sent, later[0].At), later[1:]
			continue
		}
		if !more {
			return r
		}
		s.now = max(s.now, at)
		s.e.Advance(s.now, &fx)
	}
}

func calibrated(t *testing.T, s *server, l Limits) *Fit {
	t.Helper()
	p, err := New(l, 2*s.away)
	if err != nil {
		t.Fatal(err)
	}
	for {
		x, more := p.Next()
		if !more {
			break
		}
		if err := p.Took(s.play(x)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := p.Fit()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ownServer(t *testing.T, accelerator string, blocks int, beside float64) (*server, *latency.Timer) {
	t.Helper()
	h, err := (hardware.Names{Model: "meta-llama/Meta-Llama-3.1-8B", Accelerator: accelerator}).Resolve()
	if err != nil {
		t.Fatal(err)
	}
	config := latency.Config{Kind: latency.KindTable, Hardware: h}
	if beside != 1 {
		for _, m := range latency.Builtin() {
			if m.System == "h100_sxm" && m.TP == h.Group.TP && strings.HasSuffix(m.Model, "8B") {
				config.Points = slices.Clone(m.Points)
			}
		}
		one, err := latency.NewTable(config.Points, h)
		if err != nil {
			t.Fatal(err)
		}
		p := latency.Point{Decode: true, Batch: 32, Context: 128, Prompt: 2048}
		decode := one.StepTime(hardware.DecodeStep(32, 128)).Time()
		p.Nanoseconds = int64(decode) + int64(beside*float64(one.StepTime(p.Step()).Time()-decode))
		config.Points = append(config.Points, p)
	}
	timer, err := latency.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Timer: timer, MaxModelLen: 16384, NumGPUBlocks: blocks, MaxNumSeqs: 256})
	if err != nil {
		t.Fatal(err)
	}
	return &server{t: t, e: e, jitter: func() float64 { return 0 }}, timer
}

// Client and server on one clock: the table of our own model server comes back, at
// the points that were probed and between them, however far away the server is.
func TestRecoversOurOwnTable(t *testing.T) {
	for _, c := range []struct {
		accelerator string
		away        machine.Time
		noise       float64
		beside      float64 // the share of a prompt's time that it takes beside decoding
	}{{"H100", 0, 0, 1}, {"A100", 3 * machine.Millisecond, 0, 1}, {"H100", machine.Millisecond, 30e3, 1},
		{"H100", 0, 0, 1.4}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s, timer := ownServer(t, c.accelerator, 65536, c.beside)
			s.away = c.away
			draw, n := machine.NewDraw(1, "calibrate", "test", 0), 0
			s.jitter = func() float64 {
				n++
				return c.noise * float64(draw.Intn(1000)) / 1000
			}
			l := usualLimits()
			f := calibrated(t, s, l)
			table, err := latency.NewTable(f.Points, nil)
			if err != nil {
				t.Fatal(err)
			}
			compare := func(what string, step *engine.Step) {
				want, got := timer.StepTime(step), table.StepTime(step)
				if off := float64(got-want) / float64(want); math.Abs(off) > 0.03 {
					t.Errorf("%s: %v, and truly %v: off by %.1f%%", what, got.Time(), want.Time(), 100*off)
				}
			}
			for _, n := range []int64{16, 64, 256, 512, 700, 1024, 2048, 3000, 4096, 8192} {
				compare(fmt.Sprintf("prompt of %d", n), hardware.PrefillStep(n))
			}
			for _, b := range []int64{1, 2, 3, 4, 8, 16, 24, 32, 64} {
				for _, n := range []int64{128, 512, 1024, 2048, 4096, 8192} {
					compare(fmt.Sprintf("%d at once of %d", b, n), hardware.DecodeStep(b, n))
				}
			}
			for _, b := range []int64{1, 8, 24, 64} {
				for _, n := range []int64{512, 1500, 4096} {
					step := hardware.PrefillStep(n)
					step.DecodeSeqs, step.DecodeContext = int(b), b*150
					compare(fmt.Sprintf("a prompt of %d beside %d", n, b), step)
				}
			}
			for of, bound := range map[Kind]float64{Prompts: 0.05, Decodes: 0.05, Mixed: 0.05, Traffic: 0.10} {
				if mid, most, err := f.Errors(of); err != nil || mid > 0.02 || most > bound {
					t.Errorf("held out, %s: %.2f%% in the middle and %.2f%% at most: %v", of, 100*mid, 100*most, err)
				}
			}
			if n := len(f.HeldOut); n < 18 || f.HeldOut[n-1].Name != "Poisson at 80%, E2E p90" {
				t.Errorf("held out %+v", f.HeldOut)
			}
			if x := f.Prefix; x == nil || x.Cached < 4000 || x.Warm*2 > x.Cold+4*c.away {
				t.Errorf("a prompt that comes again: %+v", x)
			}
			var file strings.Builder
			if err := f.Write(&file,
				&About{Model: "m, x", System: "mine", Backend: "vllm", Lines: []string{"two\nlines"}}); err != nil {
				t.Fatal(err)
			}
			again, err := latency.ParseCSV("x.csv", file.String())
			if err != nil || len(again) != 1 || len(again[0].Points) != len(f.Points) ||
				again[0].Points[3] != f.Points[3] {
				t.Errorf("the file reads as %+v: %v", again, err)
			}
		})
	}
}

// A batch that does not fit into the server's KV cache continues the batches that do, and the result reports it.
func TestBatchesThatDoNotFit(t *testing.T) {
	for _, known := range []int{0, 2048 * 16} {
		s, timer := ownServer(t, "H100", 2048, 1) // 32,768 tokens
		l := usualLimits()
		l.MaxBatch, l.KVTokens = 32, known
		f := calibrated(t, s, l)
		table, err := latency.NewTable(f.Points, nil)
		if err != nil {
			t.Fatal(err)
		}
		unmeasured := 0
		for i, p := range f.Points {
			if f.Extrapolated[i] {
				unmeasured++
				if p.Batch*p.Context < 16384 {
					t.Errorf("%+v fits", p)
				}
			}
		}
		if unmeasured < 3 {
			t.Errorf("%d points are reported as not measured", unmeasured)
		}
		for _, b := range []int64{1, 4, 8, 16} {
			step := hardware.DecodeStep(b, 1024)
			want, got := timer.StepTime(step), table.StepTime(step)
			if off := float64(got-want) / float64(want); math.Abs(off) > 0.05 {
				t.Errorf("%d at once of 1,024: %v, and truly %v", b, got.Time(), want.Time())
			}
		}
	}
}

// A measurement that is stopped early gives a table, if it has enough points. A server that does not follow the
// requests gives none.
func TestStoppedAndStrange(t *testing.T) {
	s, _ := ownServer(t, "H100", 65536, 1)
	p, err := New(usualLimits(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 70 {
		x, more := p.Next()
		if !more {
			t.Fatal("there are too few probes")
		}
		if i == 10 {
			if _, err := p.Fit(); err == nil || !strings.Contains(err.Error(), "expected at least 2 and 1") {
				t.Errorf("found %v", err)
			}
		}
		if err := p.Took(s.play(x)); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := p.Fit(); err != nil || len(f.Points) < 12 {
		t.Errorf("found %+v, %v", f, err)
	}
	x, _ := p.Next()
	r := s.play(x)
	r.Arrived[0] = r.Arrived[0][:len(r.Arrived[0])-1]
	if err := p.Took(r); err == nil || !strings.Contains(err.Error(), "that were asked for") {
		t.Errorf("found %v", err)
	}
	for _, l := range []Limits{{}, {MaxPrompt: 64, MaxBatch: 1, Repeats: 1},
		{MaxPrompt: 64, MaxBatch: 1, Repeats: 1, Contexts: []int{5, 5}},
		{MaxPrompt: 64, MaxBatch: 9999, Repeats: 1, Contexts: []int{5}}} {
		if _, err := New(l, 0); err == nil {
			t.Errorf("%+v is taken", l)
		}
	}
}

// Mixed steps that a busy machine has distorted are left out and reported. The other measurements still give a table.
func TestMixedStepsLeftOut(t *testing.T) {
	s, _ := ownServer(t, "H100", 65536, 1)
	p, err := New(Limits{MaxPrompt: 2048, MaxBatch: 4, Repeats: 1, Contexts: []int{64, 256}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for x, more := p.Next(); more; x, more = p.Next() {
		if err := p.Took(s.play(x)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := p.Fit()
	if err != nil || whole.LeftOut != "" || len(p.mixes) == 0 {
		t.Fatalf("%+v, %v, %d mixed steps", whole, err, len(p.mixes))
	}
	for i := range p.mixes {
		p.mixes[i].took *= 1000
	}
	f, err := p.Fit()
	if err != nil || !strings.Contains(f.LeftOut, "times as long beside decoding") ||
		len(f.Points) != len(whole.Points)-len(p.mixes) {
		t.Errorf("%v, left out %q, %d of %d points", err, f.LeftOut, len(f.Points), len(whole.Points))
	}
}

// usualLimits probe as far as most servers compute in one step, in a few minutes.
func usualLimits() Limits {
	return Limits{MaxPrompt: 8192, MaxBatch: 64, Contexts: []int{128, 512, 2048, 4096, 8192}, Repeats: 5, Traffic: 100}
}
