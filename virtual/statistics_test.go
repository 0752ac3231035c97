package virtual

import (
	"container/heap"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// statistics says whether the tests of what intervals promise play all of their seeds (make test-statistics).
var statistics = os.Getenv("WINDTUNNEL_STATISTICS") != ""

// system is something whose measures are known: a run of n requests by a seed, and what is true of it.
type system struct {
	name string
	play func(t *testing.T, n int, seed uint64) *report.Sample
	true func(t *testing.T) map[string]float64
	// lengths are the numbers of requests that are played, and surelyFrom is from how many on an interval of a
	// mean is promised in 95 % of runs.
	lengths    []int
	surelyFrom int
	// unsure is the relative standard error of what is true, where that was measured.
	unsure map[string]float64
}

// recursion is a run of n requests of a queue that a few lines play: each gives when a request was sent, and
// when it ended, in mean services of 10 ms.
func recursion(n int, play func(each func(sent, ended float64))) *report.Sample {
	x, err := report.SampleOf(func(add func(report.Ended)) error {
		i := int32(0)
		play(func(sent, ended float64) {
			i++
			at := machine.Time(sent * 1e7)
			add(report.Ended{Number: i, Sent: at, E2E: machine.Time(ended*1e7) - at, Prompt: 1, Tokens: 1,
				Completed: true})
		})
		return nil
	})
	if err != nil {
		panic(err) // the recursion gives none
	}
	return x
}

var queueLengths = []int{2000, 5000, 10_000, 20_000, 50_000, 100_000}

// openQueue is M/M/1 from empty, by Lindley's recursion. Sojourns are exponential.
func openQueue(load float64, surelyFrom int) system {
	mean := 1 / (1 - load)
	return system{fmt.Sprintf("open loop at %.1f", load), func(_ *testing.T, n int, seed uint64) *report.Sample {
		r := rand.New(rand.NewPCG(seed, 9))
		return recursion(n, func(each func(sent, ended float64)) {
			at, free := 0.0, 0.0
			for range n {
				at += r.ExpFloat64() / load
				free = max(at, free) + r.ExpFloat64()
				each(at, free)
			}
		})
	}, known(map[string]float64{"e2e mean": mean / 100, "e2e p50": mean * math.Ln2 / 100,
		"e2e p90": mean * math.Log(10) / 100,
		"e2e p99": mean * math.Log(100) / 100, "requests/s": load * 100, "in flight": load * mean}), queueLengths,
		surelyFrom, nil}
}

func known(m map[string]float64) func(*testing.T) map[string]float64 {
	return func(*testing.T) map[string]float64 { return m }
}

// clients of a closed loop, by when they send next.
type clients []float64

func (c clients) Len() int           { return len(c) }
func (c clients) Less(i, j int) bool { return c[i] < c[j] }
func (c clients) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *clients) Push(x any)        { *c = append(*c, x.(float64)) }
func (c *clients) Pop() any {
	x := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return x
}

// bisect returns where a falling function crosses a value.
func bisect(value float64, of func(x float64) float64) float64 {
	low, high := 0.0, 1e4
	for range 100 {
		if mid := (low + high) / 2; of(mid) > value {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// closedQueue is the machine-repair model: clients that all send at once at first, and think between an answer
// and the next request. By the arrival theorem a request meets as many others as there are with one client fewer,
// so that its sojourn is a mixture of Erlang times.
func closedQueue(load float64, n, surelyFrom int) system {
	weights := func(n int, think float64) []float64 {
		w, sum := make([]float64, n+1), 0.0
		for k, term := 0, 1.0; k <= n; k++ {
			w[k] = term
			sum += term
			term *= float64(n-k) / think
		}
		for k := range w {
			w[k] /= sum
		}
		return w
	}
	think := bisect(load, func(think float64) float64 { return 1 - weights(n, think)[0] })
	rate, met := 1-weights(n, think)[0], weights(n-1, think)
	quantile := func(p float64) float64 {
		return bisect(1-p, func(x float64) float64 { // P(sojourn > x)
			over, term, erlang := 0.0, math.Exp(-x), 0.0
			for k, w := range met {
				erlang += term
				over += w * erlang
				term *= x / float64(k+1)
			}
			return over
		})
	}
	return system{fmt.Sprintf("closed loop at %.1f", load),
		func(_ *testing.T, requests int, seed uint64) *report.Sample {
			r := rand.New(rand.NewPCG(seed, 9))
			return recursion(requests, func(each func(sent, ended float64)) {
				c, free := make(clients, n), 0.0
				for range requests {
					sent := heap.Pop(&c).(float64)
					free = max(sent, free) + r.ExpFloat64()
					each(sent, free)
					heap.Push(&c, free+think*r.ExpFloat64())
				}
			})
		}, known(map[string]float64{"e2e mean": (float64(n)/rate - think) / 100, "e2e p50": quantile(0.5) / 100,
			"e2e p90": quantile(0.9) / 100,
			"e2e p99": quantile(0.99) / 100, "requests/s": rate * 100, "in flight": float64(n) - rate*think}),
		queueLengths,
		surelyFrom, nil}
}

// servers are model servers that batch, under a load that a scenario writes down. What is true of them is the mean
// of 50 runs of 200,000 requests with other seeds. The loads are chosen for the measured step times.
func servers(name, load string, lengths []int, surelyFrom int) system {
	play := func(t *testing.T, n int, seed uint64) *report.Sample {
		s, err := scenario.Parse("servers.yaml",
			fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario, name: servers, seed: %d,
			pools: [{name: default, flow: plain, replicas: 2, modelServer: {batching: continuous, accelerator: H100,
				source: measured, model: llama-3.1-8b, maxNumSeqs: 16, outputTokens: 'exponential(60, min=1, max=600)'}}],
			workload: {requests: %d, timeout: 24h, prompt: {characters: 200..4000}, %s}}`, seed, n, load))
		if err != nil {
			t.Fatal(err)
		}
		tally := report.NewTally()
		if err := Run(s, tally, nil); err != nil {
			t.Fatal(err)
		}
		return tally.Sample()
	}
	return system{name: name, play: play, lengths: lengths, surelyFrom: surelyFrom}.measured()
}

// measured has what is true of a system from long runs of it.
func (s system) measured() system {
	var once sync.Once
	truth := map[string]float64{}
	s.unsure = map[string]float64{}
	s.true = func(t *testing.T) map[string]float64 {
		once.Do(func() {
			const runs, n = 50, 200_000
			squares := map[string]float64{}
			for seed := range uint64(runs) {
				a := (report.Runs{s.play(t, n, 1_000_000+seed)}).Under(record.SLO{})
				for _, name := range []string{"ttft mean", "ttft p50", "ttft p90", "tpot mean", "itl mean", "e2e mean",
					"e2e p90", "requests/s", "output tokens/s"} {
					v := estimate(t, a, name).Value
					truth[name] += v / runs
					squares[name] += v * v / runs
				}
			}
			for name, v := range truth {
				s.unsure[name] = math.Sqrt(max(0, squares[name]/(v*v)-1) / runs)
			}
		})
		return truth
	}
	return s
}

func estimate(t *testing.T, a *report.Analysis, name string) report.Estimate {
	t.Helper()
	m, ok := report.MeasureNamed(name)
	if !ok {
		t.Fatalf("no measure is called %s", name)
	}
	e, ok := a.Estimate(m)
	if !ok {
		t.Fatalf("the run has no %s", name)
	}
	return e
}

// cell has the results of one measure over all seeds.
type cell struct{ runs, printed, held, bias, squares, half float64 }

func (c *cell) add(e report.Estimate, want float64) {
	c.runs++
	off := e.Value/want - 1
	c.bias += off
	c.squares += off * off
	if e.Sure {
		c.printed++
		c.half += (e.High - e.Low) / 2 / want
		if e.Low <= want && want <= e.High {
			c.held++
		}
	}
}

// result returns the share of intervals that hold, the mean bias and its standard error.
func (c *cell) result() (held, bias, se float64) {
	bias = c.bias / c.runs
	return c.held / c.printed, bias, math.Sqrt(max(0, c.squares/c.runs-bias*bias) / c.runs)
}

// Intervals cover what they promise: 95 % on average over all measures, lengths and systems, and no measure of any
// below 91 %, counted where an interval is printed. Means are printed in 95 % of runs that are long enough, and
// have no bias that matters.
func TestStatisticsOfIntervals(t *testing.T) {
	systems := []system{openQueue(0.5, 2000), openQueue(0.8, 20_000), openQueue(0.9, 100_000),
		closedQueue(0.5, 20, 2000), closedQueue(0.8, 20, 20_000), closedQueue(0.9, 20, 100_000),
		servers("light load", "rate: 24, concurrency: 100000", []int{2000, 10_000}, 10_000),
		servers("near saturation", "rate: 50, concurrency: 100000", []int{2000, 10_000}, math.MaxInt),
		servers("32 clients", "concurrency: 32", []int{2000, 10_000}, 10_000)}
	seeds, least := 400, 0.91
	if !statistics { // a part of it, as far as so few seeds can say anything
		systems, seeds, least = systems[:2], 40, 0.8
		for i := range systems {
			systems[i].lengths = []int{2000, 20_000}
		}
	}
	var mu sync.Mutex
	var all []float64
	t.Run("cells", func(t *testing.T) {
		for _, s := range systems {
			for _, n := range s.lengths {
				t.Run(fmt.Sprintf("%s, %d requests", s.name, n), func(t *testing.T) {
					t.Parallel()
					truth := s.true(t)
					cells := map[string]*cell{}
					for seed := range uint64(seeds) {
						a := (report.Runs{s.play(t, n, seed+1)}).Under(record.SLO{})
						for name, want := range truth {
							if cells[name] == nil {
								cells[name] = &cell{}
							}
							cells[name].add(estimate(t, a, name), want)
						}
					}
					var text strings.Builder
					for _, name := range slices.Sorted(maps.Keys(truth)) {
						c := cells[name]
						held, bias, se := c.result()
						se = math.Hypot(se, s.unsure[name])
						fmt.Fprintf(&text, "\n%16s: printed in %3.0f%%, hold %5.1f%%, ±%.1f%%, bias %+.2f%% (%+.1f)",
							name,
							100*c.printed/c.runs, 100*held, 100*c.half/c.printed, 100*bias, bias/se)
						if c.printed > 0 {
							mu.Lock()
							all = append(all, held)
							mu.Unlock()
						}
						mean := strings.HasSuffix(name, "mean")
						switch {
						case c.printed > 0 && held < least:
							t.Errorf("%s: %.1f%% of the intervals hold what is true", name, 100*held)
						case n >= s.surelyFrom && (mean || strings.HasSuffix(name, "/s")) && c.printed < 0.95*c.runs:
							t.Errorf("%s: %.0f of %.0f runs print an interval", name, c.printed, c.runs)
						case mean && math.Abs(bias) > max(0.005, 3*se) && (n > 2000 || s.name != "open loop at 0.9"):
							t.Errorf("%s: it is off by %+.2f%% on average (%.1f standard errors)", name, 100*bias,
								bias/se)
						}
					}
					t.Log(text.String())
				})
			}
		}
	})
	sum := 0.0
	for _, held := range all {
		sum += held
	}
	mean := sum / float64(len(all))
	t.Logf("over %d measures, lengths and systems, %.2f%% of the intervals hold what is true", len(all), 100*mean)
	if statistics && (mean < 0.935 || mean > 0.965) {
		t.Errorf("%.2f%% of all intervals hold what is true, expected 93.5 to 96.5%%", 100*mean)
	}
}

// A simulated server is the recursion: over 20 seeds each, the means of sim's sojourns and those of openQueue differ by
// less than three standard errors, and so do their variances, from which intervals result.
func TestStatisticsOfTheRecursion(t *testing.T) {
	const seeds = 20
	service := drawn(t, "exponential(400, min=1, max=8000)") // 100 ms on average, where the recursion has 10
	requests, loads := 2000, []float64{0.8}
	if statistics {
		requests, loads = 100_000, []float64{0.5, 0.8, 0.9}
	}
	for _, load := range loads {
		t.Run(fmt.Sprintf("load %.1f", load), func(t *testing.T) {
			t.Parallel()
			simulated := func(t *testing.T, n int, seed uint64) *report.Sample {
				s, err := scenario.Parse("queue.yaml", fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario,
					seed: %d, pools: [{name: default, flow: plain, replicas: 1, modelServer: {batching: none,
					interTokenLatency: 25us, prefill: 25us, outputTokens: '%s'}}],
					workload: {requests: %d, timeout: 24h, rate: %v, concurrency: 1000000}}`, seed,
					service.tokens, n, 10*load/service.mean))
				if err != nil {
					t.Fatal(err)
				}
				s.Hops = scenario.Hops{}
				tally := report.NewTally()
				if err := Run(s, tally, nil); err != nil {
					t.Fatal(err)
				}
				return tally.Sample()
			}
			of := func(play func(*testing.T, int, uint64) *report.Sample) (means, deviations []float64) {
				for seed := range uint64(seeds) {
					sojourns := []float64{}
					for _, e := range play(t, requests, seed+1).Requests {
						sojourns = append(sojourns, e.E2E.Seconds())
					}
					mean, sd := meanAndDeviation(sojourns)
					means, deviations = append(means, mean), append(deviations, sd)
				}
				return means, deviations
			}
			simMeans, simDeviations := of(simulated)
			means, deviations := of(openQueue(load, 0).play)
			for _, c := range []struct {
				name      string
				sim, want []float64
			}{{"mean", simMeans, means}, {"deviation", simDeviations, deviations}} {
				a, sa := meanAndDeviation(c.sim)
				b, sb := meanAndDeviation(c.want)
				z := (a - b) / math.Sqrt((sa*sa+sb*sb)/seeds)
				t.Logf("%s: sim %.3f ms, recursion %.3f ms, z %.2f", c.name, 1e3*a, 1e3*b, z)
				if !(math.Abs(z) < 3) {
					t.Errorf("the %s of sim's sojourns is %.3f ms, and of the recursion's %.3f ms (%.1f standard "+
						"errors)", c.name, 1e3*a, 1e3*b, z)
				}
			}
		})
	}
}

// Little's law holds for the measures that sim prints. In its exact form the requests in flight, summed up over the
// window, are the time that requests spent in it; in a long steady run the measured requests in flight are the measured
// rate times the measured mean time.
func TestStatisticsKeepLittlesLaw(t *testing.T) {
	for _, c := range []struct {
		name, file string
		requests   int
		settings   []scenario.Setting
	}{{"open", "plain", 10_000, nil}, {"P/D", "pd", 2_000, nil},
		{"closed", "plain", 2_000, []scenario.Setting{{Path: "workload.rate", Value: "0"},
			{Path: "workload.concurrency", Value: "16"}}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requests := c.requests
			if statistics {
				requests = 10_000
			}
			s, err := scenario.Load("../examples/"+c.file+".yaml", c.settings...)
			if err != nil {
				t.Fatal(err)
			}
			s.Workload.Requests = requests
			tally := report.NewTally()
			var all []report.Ended
			tally.OnEnded(func(e *report.Ended) { all = append(all, *e) })
			if err := Run(s, tally, nil); err != nil {
				t.Fatal(err)
			}
			x := tally.Sample()
			spent := 0.0
			for _, e := range all {
				spent += max(0, (min(e.Sent+e.E2E, x.To) - max(e.Sent, x.From)).Seconds())
			}
			of := map[string]float64{}
			for _, m := range (report.Runs{x}).Under(record.SLO{}).All() {
				of[m.Measure] = m.Value
			}
			if there := of["in flight"] * (x.To - x.From).Seconds(); math.Abs(there/spent-1) > 1e-9 {
				t.Errorf("%v request-seconds are in flight, and requests spent %v s in the window", there, spent)
			}
			if l, w := of["in flight"], of["requests/s"]*of["e2e mean"]; requests >= 10_000 &&
				(!x.Steady || math.Abs(l-w) > 0.01*l) {
				t.Errorf("steady is %v, and %v requests are in flight where %v requests/s take %v s each", x.Steady, l,
					of["requests/s"], of["e2e mean"])
			}
		})
	}
}
