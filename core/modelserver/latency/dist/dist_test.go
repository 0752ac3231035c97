package dist

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

// testdata/dist reads distributions as people write them and shows what they
// became, or what the error says.
func TestDistScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/dist", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			if td.Cmd == "draws" {
				return firstDraws(strings.Split(td.Input, "\n"))
			}
			unit := map[string]Unit{"duration": Nanoseconds, "count": Count, "factor": Millionths,
				"mapping": Nanoseconds}[td.Cmd]
			var out strings.Builder
			for _, line := range strings.Split(td.Input, "\n") {
				d, err := ParseUnit(unit, line)
				if td.Cmd == "mapping" {
					var m map[string]any
					if err := json.Unmarshal([]byte(line), &m); err != nil {
						t.Fatal(err)
					}
					fmt.Fprintln(&out, "write:", new(Dist).InsteadOf(m))
					continue
				}
				if err != nil {
					fmt.Fprintf(&out, "error: %v\n", err)
					continue
				}
				fmt.Fprintf(&out, "%s %s: p1 %s p50 %s p99 %s mean %s\n", d.Family(), d,
					unit.format(float64(d.Quantile(.01))),
					unit.format(float64(d.Quantile(.5))), unit.format(float64(d.Quantile(.99))),
					unit.format(math.Round(d.Mean())))
			}
			return out.String()
		})
	})
}

// firstDraws lists draws to the nanosecond, and the sum of ten thousand: the
// same on every processor, whether it fuses multiplications and additions or
// not (try GOAMD64=v3).
func firstDraws(texts []string) string {
	var out strings.Builder
	for _, text := range texts {
		d, err := Parse(text)
		if err != nil {
			fmt.Fprintf(&out, "error: %v\n", err)
			continue
		}
		var sum int64
		fmt.Fprintf(&out, "%s:", d)
		for i := range uint64(10_000) {
			draw := machine.NewDraw(1, "golden", "draw", i)
			v := d.Sample(&draw)
			sum += v
			if i < 4 {
				fmt.Fprintf(&out, " %d", v)
			}
		}
		fmt.Fprintf(&out, " ... sum %d\n", sum)
	}
	return out.String()
}

var someDists = []string{"50ms", "100ms..30s", "50ms±10%", "normal(50ms, 5ms)", "normal(50ms, 50ms, min=1ms, max=60ms)",
	"lognormal(50ms, 200ms)", "exponential(3ms, max=4ms)", "pareto(10ms, 1.2)", "pareto(10ms, 3, max=1s)",
	"empirical(1ms*3, 2ms, 7ms)"}

// Draws stay within the limits, quantiles never fall, and no mass accumulates at an edge (as it would with clamping).
func TestDistDraws(t *testing.T) {
	for _, text := range someDists {
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		draws := make([]int64, 20_000)
		for i := range draws {
			draw := machine.NewDraw(1, "test", text, uint64(i))
			draws[i] = d.Sample(&draw)
			sum += float64(draws[i])
		}
		slices.Sort(draws)
		n := len(draws)
		if draws[0] < d.lo || draws[n-1] > d.hi {
			t.Errorf("%s: draws %d..%d outside %d..%d", text, draws[0], draws[n-1], d.lo, d.hi)
		}
		if d.Family() != FamilyEmpirical && !d.IsConstant() && (draws[0] == draws[20] || draws[n-1] == draws[n-20]) {
			t.Errorf("%s: mass on an edge", text)
		}
		for _, p := range []float64{.1, .5, .9} {
			if got, want := draws[int(p*float64(n))], d.Quantile(p); math.Abs(float64(got-want)) > .08*float64(want) {
				t.Errorf("%s: p%v of draws %d, quantile %d", text, p*100, got, want)
			}
		}
		if !strings.HasPrefix(text, "pareto(10ms, 1.2") { // infinite variance
			if mean := sum / float64(n); math.Abs(mean-d.Mean()) > .06*mean {
				t.Errorf("%s: mean of draws %.0f, Mean %.0f", text, mean, d.Mean())
			}
		}
	}
}

// Whatever is written back reads as the same distribution.
func TestDistRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := func(name string, low int) string {
			return fmt.Sprintf("%dms", rapid.IntRange(low, 5000).Draw(t, name))
		}
		text := rapid.SampledFrom([]string{
			ms("a", 0), ms("a", 0) + "±" + fmt.Sprint(rapid.IntRange(0, 100).Draw(t, "percent")) + "%",
			"lognormal(" + ms("a", 1) + "," + ms("b", 0) + ")", "exponential(" + ms("a", 1) + ")",
			"pareto(" + ms("a", 1) + ", 1.5)", "empirical(" + ms("a", 0) + "*4," + ms("b", 0) + ")",
			"normal(" + ms("a", 3000) + ", 900ms, max=" + ms("c", 3000) + ")",
		}).Draw(t, "text")
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(d.String())
		if err != nil {
			t.Fatalf("%s wrote %s: %v", text, d, err)
		}
		for _, p := range []float64{0, .001, .25, .5, .999, 1} {
			if x, y := d.Quantile(p), again.Quantile(p); x != y {
				t.Fatalf("%s wrote %s: quantile %v %d became %d", text, d, p, x, y)
			}
		}
	})
}

func TestExactFunctions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(-600, 600).Draw(t, "x")
		if got, want := exactExp(x), math.Exp(x); math.Abs(got-want) > 1e-12*want {
			t.Fatalf("exp %v: %v, want %v", x, got, want)
		}
		y := rapid.Float64Range(1e-300, 1e300).Draw(t, "y")
		if got, want := exactLog(y), math.Log(y); math.Abs(got-want) > 1e-13*(1+math.Abs(want)) {
			t.Fatalf("log %v: %v, want %v", y, got, want)
		}
		u := rapid.Float64Range(1e-12, 1-1e-12).Draw(t, "u")
		if got, want := exactProbit(u), math.Sqrt2*math.Erfinv(2*u-1); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("probit %v: %v, want %v", u, got, want)
		}
	})
}

func FuzzDist(f *testing.F) {
	for _, text := range append(someDists, "1..2", "±10%", "empirical()", "normal(1)", "9e99", "-1ms", "1e300s") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, unit := range []Unit{Nanoseconds, Count, Millionths} {
			d, err := ParseUnit(unit, text)
			if err != nil {
				continue
			}
			draw := machine.NewDraw(1, "fuzz", text, 0)
			if v := d.Sample(&draw); v < 0 || v > units[unit].limit {
				t.Fatalf("%s gave %d", d, v)
			}
			if _, err := ParseUnit(unit, d.String()); err != nil {
				t.Fatalf("%q wrote %s: %v", text, d, err)
			}
		}
		var d Dist
		if err := d.UnmarshalText([]byte(text)); err == nil {
			if again := new(Dist); again.UnmarshalText([]byte(d.String())) != nil {
				t.Fatalf("%q wrote %s", text, d)
			}
		}
		var mapping map[string]any
		if json.Unmarshal([]byte(text), &mapping) == nil {
			_ = d.InsteadOf(mapping)
		}
	})
}
