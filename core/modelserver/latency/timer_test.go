package latency

import (
	"errors"
	"math"
	"sort"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"pgregory.net/rapid"
)

func mustResolve(t testing.TB, n hardware.Names) *hardware.Hardware {
	t.Helper()
	h, err := n.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Every built-in table passes its own hardware's floor and gives its points
// back within 2 % (most exactly; noise that falls with context is lifted). The
// roofline, which has never seen them, stays within 25 %.
func TestBuiltinTables(t *testing.T) {
	points := 0
	for _, m := range Builtin() {
		h := mustResolve(t, hardware.Names{Model: m.Model, Accelerator: m.System, TP: m.TP})
		timer, err := New(Config{Hardware: h})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(timer.Source(), "AIConfigurator") {
			t.Errorf("%s: source %q", m.Model, timer.Source())
		}
		roof, err := New(Config{Kind: KindRoofline, Hardware: h})
		if err != nil {
			t.Fatal(err)
		}
		var off []float64
		for _, p := range m.Points {
			points++
			if got := timer.StepTime(p.Step()).Time(); math.Abs(float64(got)/float64(p.Nanoseconds)-1) > .02 {
				t.Errorf("%s on %s TP %d: %s: %s, measured %s", m.Model, m.System, m.TP, p, hardware.Round(int64(got)),
					hardware.Round(p.Nanoseconds))
			}
			got := roof.StepTime(p.Step()).Time()
			off = append(off, math.Abs(float64(got)/float64(p.Nanoseconds)-1))
			if last := off[len(off)-1]; last > .25 {
				t.Errorf("roofline of %s on %s TP %d: %s: %s, measured %s", m.Model, m.System, m.TP, p,
					hardware.Round(int64(got)), hardware.Round(p.Nanoseconds))
			}
		}
		sort.Float64s(off)
		if median := off[len(off)/2]; median > .1 {
			t.Errorf("roofline of %s on %s TP %d: median error %.0f %%", m.Model, m.System, m.TP, 100*median)
		}
	}
	if points != 567 {
		t.Errorf("%d points; step-times.csv has 567", points)
	}
}

func someTimers(t testing.TB) map[string]engine.StepTimer {
	table := mustResolve(t, hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H100", TP: 4})
	spread := mustResolve(t, hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H100", TP: 4, Nodes: 2})
	experts := mustResolve(t, hardware.Names{Model: "openai/gpt-oss-120b", Accelerator: "H100", TP: 2})
	timers := map[string]engine.StepTimer{}
	for name, c := range map[string]Config{
		"table": {Hardware: table}, "table over nodes": {Hardware: spread},
		"roofline": {Kind: KindRoofline, Hardware: table}, "experts": {Hardware: experts},
		"vLLM": {Kind: KindVLLM, Hardware: table}, "vLLM over nodes": {Kind: KindVLLM, Hardware: spread},
		"vLLM of experts":          {Kind: KindVLLM, Hardware: experts},
		"inference-sim":            {Kind: KindInferenceSim, Hardware: table},
		"inference-sim of experts": {Kind: KindInferenceSim, Hardware: experts},
		"document":                 {Kind: KindDocument, Hardware: table},
		"constant": {Kind: KindConstant,
			Constant: Constant{100 * machine.Millisecond, 20 * machine.Millisecond}},
		"per-token": {Kind: KindPerToken,
			PerToken: PerToken{engine.FixedNanos(6.1e6), 0, engine.FixedNanos(20500), engine.FixedNanos(9000),
				engine.FixedNanos(.044)}},
	} {
		timer, err := New(c)
		if err != nil {
			t.Fatal(name, err)
		}
		timers[name] = timer
	}
	return timers
}

// A line agrees with single steps wherever it applies, and ends where it says.
func TestLinesAreSteps(t *testing.T) {
	for name, timer := range someTimers(t) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			batch := rapid.IntRange(1, 700).Draw(t, "batch")
			context := int64(batch) * rapid.Int64Range(1, 40_000).Draw(t, "mean")
			context += rapid.Int64Range(0, int64(batch)).Draw(t, "rest")
			line, ok := timer.DecodeLine(batch, context)
			if !ok || line.Base < oneNanosecond || line.Slope < 0 || line.Until <= context {
				t.Fatalf("line %+v", line)
			}
			last := min(line.Until-1, context+1<<22)
			for _, c := range []int64{context, last, rapid.Int64Range(context, last).Draw(t, "within")} {
				want := timer.StepTime(&engine.Step{DecodeSeqs: batch, DecodeContext: c})
				if got := line.Base + line.Slope*engine.Fixed(c-context); got != want {
					t.Fatalf("at %d: line %d, step %d", c, got, want)
				}
			}
		}))
	}
}

// More work never takes less time, within the noise of measured batches.
func TestMoreWorkTakesLonger(t *testing.T) {
	for name, timer := range someTimers(t) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			n := rapid.Int64Range(1, 8192).Draw(t, "new")
			before := rapid.Int64Range(0, 30_000).Draw(t, "before")
			batch := rapid.Int64Range(0, 256).Draw(t, "batch")
			step := engine.Step{PrefillSeqs: 1, PrefillFinished: 1, PrefillTokens: n, PrefillContext: before,
				PrefillPairs: n*before + n*(n+1)/2,
				DecodeSeqs:   int(batch), DecodeContext: batch * rapid.Int64Range(1, 4096).Draw(t, "context")}
			long := step
			long.PrefillTokens, long.PrefillPairs = n+64, (n+64)*before+(n+64)*(n+65)/2
			alone := step
			alone.DecodeSeqs, alone.DecodeContext = 0, 0
			a, b, c := timer.StepTime(&alone), timer.StepTime(&step), timer.StepTime(&long)
			if a > b || b > c {
				t.Fatalf("prompt alone %v, with decodes %v, longer %v", a.Time(), b.Time(), c.Time())
			}
		}))
	}
}

// A measured mixed step is given back, and others scale as it does; those whose prompt hides the
// decoding say nothing, and a share that no server has is refused.
func TestMixedSteps(t *testing.T) {
	h := mustResolve(t, hardware.Names{Model: "Llama-3.1-8B", Accelerator: "H100"})
	points, _, _ := builtinPoints(h)
	plain, err := NewTable(points, h)
	if err != nil {
		t.Fatal(err)
	}
	beside := func(prompt int64, share float64) Point {
		p := Point{Decode: true, Batch: 32, Context: 512, Prompt: prompt}
		decode := plain.StepTime(hardware.DecodeStep(32, 512)).Time()
		p.Nanoseconds = int64(decode) + int64(share*float64(plain.StepTime(p.Step()).Time()-decode))
		return p
	}
	with, err := NewTable(append(points[:len(points):len(points)], beside(2048, 1.3)), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range []int64{512, 2048, 8192} {
		p := beside(prompt, 1.3)
		if got := with.StepTime(p.Step()).Time(); math.Abs(float64(got)/float64(p.Nanoseconds)-1) > 0.001 {
			t.Errorf("%s: %s, expected %s", p, hardware.Round(int64(got)), hardware.Round(p.Nanoseconds))
		}
	}
	if _, err := NewTable(append(points[:len(points):len(points)], beside(2048, 9)), h); err == nil ||
		!strings.Contains(err.Error(), "not of the same server") {
		t.Errorf("found %v", err)
	}
}

// A prompt in chunks costs about what it costs whole: attention to what came
// before is charged, nothing is charged twice.
func TestChunksAddUp(t *testing.T) {
	timer := someTimers(t)["table"]
	whole := timer.StepTime(hardware.PrefillStep(32768)).Time()
	var sum machine.Time
	for start := int64(0); start < 32768; start += 8192 {
		sum += timer.StepTime(&engine.Step{PrefillSeqs: 1, PrefillTokens: 8192, PrefillContext: start,
			PrefillPairs: 8192*start + 8192*8193/2}).Time()
	}
	if r := float64(sum) / float64(whole); r < .97 || r > 1.15 {
		t.Errorf("four chunks take %s, the whole %s", hardware.Round(int64(sum)), hardware.Round(int64(whole)))
	}
}

// The rival's coefficients, which are fast but impossible, are refused with
// the arithmetic.
func TestTooFast(t *testing.T) {
	h := mustResolve(t, hardware.Names{Model: "Llama-3.1-8B", Accelerator: "H100"})
	_, err := New(Config{Kind: KindPerToken, Hardware: h,
		PerToken: PerToken{Step: engine.FixedNanos(6.6e6), PrefillToken: engine.FixedNanos(2450)}})
	var tooFast *hardware.TooFastError
	if !errors.As(err, &tooFast) || tooFast.Claimed >= tooFast.Bound.Nanoseconds {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"6.979e+09 parameters", "FLOP", "1 × 989 TFLOP/s", "faster than the hardware"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

// Jitter is keyed by the step and rules lines out; its mean is its base.
func TestJitter(t *testing.T) {
	factor, err := dist.ParseUnit(dist.Millionths, "±10%")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Kind: KindConstant, Constant: Constant{100 * machine.Millisecond, 20 * machine.Millisecond}, Seed: 1,
		Component: "a", Jitter: Jitter{Factor: factor}}
	timer, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := timer.DecodeLine(1, 1); ok {
		t.Error("a timer with jitter has a line")
	}
	var sum machine.Time
	for i := range 10_000 {
		s := &engine.Step{Index: uint64(i), DecodeSeqs: 1, DecodeContext: 1}
		d := timer.StepTime(s).Time()
		if d < 18*machine.Millisecond || d > 22*machine.Millisecond || d != timer.StepTime(s).Time() {
			t.Fatalf("step %d: %v", i, d)
		}
		sum += d
	}
	if mean := sum / 10_000; mean < 19900*machine.Microsecond || mean > 20100*machine.Microsecond {
		t.Errorf("mean %v", mean)
	}
}

func TestCoefficients(t *testing.T) {
	p, err := Coefficients{Step: "6.1ms", PrefillToken: "20.5us", DecodeSequence: "9.25us",
		ContextToken: "44ps"}.PerToken()
	if err != nil {
		t.Fatal(err)
	}
	if got := p.StepTime(&engine.Step{PrefillTokens: 1000, DecodeSeqs: 2,
		DecodeContext: 1_000_000}).Time(); got < 26_662_400 || got > 26_662_600 {
		t.Errorf("got %d ns, expected about 6.1 ms + 20.5 ms + 18.5 µs + 44 µs", got)
	}
	if got, _ := ParseFixed("0.044ns"); got != p.ContextToken || got != 2884 {
		t.Errorf("0.044ns is %d, 44ps is %d; expected 2884 × 2^-16 ns", got, p.ContextToken)
	}
	for _, text := range []string{"x", "-1ms", "2h", "5", "-1ps", "NaNps"} {
		if _, err := ParseFixed(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if _, err := (Coefficients{Step: "1ms", ContextToken: "fast"}).PerToken(); err == nil ||
		!strings.Contains(err.Error(), "contextToken") {
		t.Errorf("got %v", err)
	}
}

// The parts of a step add up to it, in order and without gaps.
func TestBreakdown(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		timer, err := New(Config{
			Hardware: mustResolve(t, hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H100", TP: 4, Nodes: nodes})})
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			s := hardware.DecodeStep(rapid.Int64Range(1, 256).Draw(t, "batch"),
				rapid.Int64Range(1, 9000).Draw(t, "context"))
			s.PrefillTokens = rapid.Int64Range(0, 4096).Draw(t, "prefill")
			s.PrefillPairs = s.PrefillTokens * (s.PrefillTokens + 1) / 2
			b := timer.Split(s, timer.StepTime(s).Time())
			var at machine.Time
			reduces := 0
			for e := range b.Events() {
				if e.Start != at || e.Duration < 0 {
					t.Fatalf("%v of layer %d begins at %v, expected %v", e.Phase, e.Layer, e.Start, at)
				}
				if e.Phase == PhaseAllReduce {
					reduces++
				}
				at += e.Duration
			}
			if at != b.Total || at != timer.StepTime(s).Time() || reduces != 160 {
				t.Fatalf("parts %v, step %v, %d all-reduces", at, b.Total, reduces)
			}
		})
	}
}

func BenchmarkStepTime(b *testing.B) {
	for name, timer := range someTimers(b) {
		step := hardware.DecodeStep(100, 3000)
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				step.DecodeContext++
				timer.StepTime(step)
			}
		})
		b.Run(name+"/line", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				timer.DecodeLine(100, 300_000+int64(i&0xffff))
			}
		})
	}
}

func FuzzCSV(f *testing.F) {
	f.Add(strings.Join(csvHeader, ",") + "\nm,h100,vllm,1,prefill,1,16,7.1\nm,h100,vllm,1,decode,1,16,7.1\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseCSV("fuzz.csv", text)
		if err != nil {
			return
		}
		for _, m := range all {
			table, err := NewTable(m.Points, nil)
			if err != nil {
				continue
			}
			for _, p := range m.Points {
				if got := table.StepTime(p.Step()).Time(); math.Abs(float64(got)-float64(p.Nanoseconds)) > .02*float64(
					p.Nanoseconds)+2 {
					t.Fatalf("%s: %d, given %d", p, got, p.Nanoseconds)
				}
			}
		}
	})
}
