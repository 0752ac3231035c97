package search

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/measured"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/comparison"
	"github.com/windtunnel/windtunnel/report/steptimes"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
)

// compared is a scenario of simulated model servers that comparing is tested with. few says that plain tests
// play a part of its runs, too; the others need WINDTUNNEL_STATISTICS=all.
type compared struct {
	name                   string
	pool, server, workload string
	replications           int
	few                    bool
}

// comparedScenarios have requests that wait for each other little, much, and so much that sections of a run depend on
// each other. Their rates are chosen for the measured step times.
var comparedScenarios = []compared{
	{"light", "replicas: 4,", "", "requests: 5000, rate: 60", 1, true},
	{"busy", "", "maxNumSeqs: 8", "requests: 5000, rate: 20", 1, true},
	{"queueing", "", "maxNumSeqs: 8", "requests: 5000, rate: 25", 1, false},
	{"bursts", "replicas: 2,", "", "requests: 5000, rate: 60, arrivals: gamma, burstiness: 0.25", 1, false},
	{"objective", "", "maxNumSeqs: 8", "requests: 5000, rate: 22, slo: {ttft: 100ms, e2e: 500ms}", 1, false},
	{"closed loop", "replicas: 2,", "", "requests: 5000, concurrency: 20", 1, false},
	{"conversations", "replicas: 2,", "",
		"requests: 3000, rate: 5, conversations: {turns: 2..8, thinkTime: 500ms..3s}", 1, false},
	{"light, 5 runs", "replicas: 4,", "", "requests: 1000, rate: 60", 5, false},
	{"queueing, 5 runs", "", "maxNumSeqs: 8", "requests: 1000, rate: 25", 5, false},
	{"near critical, 5 runs", "", "maxNumSeqs: 8", "requests: 1000, rate: 28", 5, false},
	{"near critical", "", "maxNumSeqs: 8", "requests: 5000, rate: 28", 1, false},
	{"too much", "", "maxNumSeqs: 8", "requests: 5000, rate: 31", 1, false},
}

// runs plays a scenario with successive seeds.
func (c *compared) runs(t *testing.T, first int, set ...scenario.Setting) report.Runs {
	t.Helper()
	v := Variant{File: c.name, Settings: set, Text: fmt.Appendf(nil, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
seed: %d
pools:
- name: default
  flow: plain
  %s
  epp: {config: {plugins: [{type: round-robin-picker}]}}
  modelServer: {batching: continuous, accelerator: H100, source: measured, outputTokens: 16..64, %s}
workload: {%s}
`, first, strings.TrimSuffix(c.pool, ","), c.server, c.workload)}
	out := make(report.Runs, c.replications)
	for i := range out {
		x, err := new(Player).Variant(context.Background(), &v, i)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = x.Sample
	}
	return out
}

// verdicts compares pairs of a scenario's runs, and counts the verdicts with a better measure, with a worse one, and
// with undecided ones only.
func (c *compared) verdicts(t *testing.T, pairs int, pair func(i int) (a, b report.Runs)) map[comparison.Verdict]int {
	t.Helper()
	count := map[comparison.Verdict]int{}
	for i := range pairs {
		a, b := pair(i)
		x := comparison.Of([]comparison.Side{{Name: "a"}, {Name: "b"}}, []report.Runs{a, b}, record.SLO{}, nil)
		said, decided := map[comparison.Verdict]bool{}, false
		for _, v := range x.Comparisons[0].Measures {
			said[v.Verdict] = true
			decided = decided || v.Corrected != nil
		}
		if (x.FailIfWorse() != nil) != said[comparison.Worse] {
			t.Fatalf("the verdict is %q, and --fail-if-worse says %v", x.Comparisons[0].Verdict, x.FailIfWorse())
		}
		switch {
		case said[comparison.Better] && said[comparison.Worse]:
			count["both"]++
		case said[comparison.Better]:
			count[comparison.Better]++
		case said[comparison.Worse]:
			count[comparison.Worse]++
		case !decided:
			count[comparison.Undecided]++
		}
	}
	return count
}

// eachCompared runs a test for each scenario, with as many pairs as there are few or many.
func eachCompared(t *testing.T, few, many int, test func(t *testing.T, c *compared, pairs int)) {
	for _, c := range comparedScenarios {
		pairs := many
		if os.Getenv("WINDTUNNEL_STATISTICS") == "" {
			if pairs = few; !c.few {
				continue
			}
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test(t, &c, pairs)
		})
	}
}

// A scenario beside itself with other seeds is better or worse in 5 of 100 comparisons by design, and in no
// more than 17 of 200. What runs beyond what its servers can do has no say.
func TestCompareFindsNothingInChance(t *testing.T) {
	eachCompared(t, 6, 200, func(t *testing.T, c *compared, pairs int) {
		got := c.verdicts(t, pairs, func(i int) (a, b report.Runs) {
			return c.runs(t, 1+2*i*c.replications), c.runs(t, 1+(2*i+1)*c.replications)
		})
		wrong := got[comparison.Better] + got[comparison.Worse] + got["both"]
		t.Logf("%s: %d of %d are wrong (%v)", c.name, wrong, pairs, got)
		if most := map[int]int{6: 2, 200: 17}[pairs]; wrong > most {
			t.Errorf("%d of %d comparisons with itself say better or worse, expected at most %d", wrong, pairs, most)
		}
	})
}

// Steps that are 1 % shorter are better in 38 of 40 comparisons at least, and never worse.
func TestCompareFindsAPercent(t *testing.T) {
	eachCompared(t, 4, 40, func(t *testing.T, c *compared, pairs int) {
		if c.name == "too much" {
			t.Skip("nothing settles there, and nothing is said")
		}
		faster := scenario.Setting{Path: "pools[0].modelServer.jitter.factor", Value: "0.99"}
		got := c.verdicts(t, pairs, func(i int) (a, b report.Runs) {
			first := 1 + i*c.replications
			return c.runs(t, first), c.runs(t, first, faster)
		})
		t.Logf("%s: %d of %d are better (%v)", c.name, got[comparison.Better], pairs, got)
		if least := pairs * 38 / 40; got[comparison.Better] < least || got[comparison.Worse]+got["both"] > 0 {
			t.Errorf("found %v in %d comparisons with 1 %% faster steps, expected at least %d better and none worse",
				got, pairs, least)
		}
	})
}

// A difference that is smaller than the expected error of the step times is doubtful, unless both variants have the
// same step times and therefore the same error.
func TestStepErrorsTurnAnswers(t *testing.T) {
	with := func(runs report.Runs, source string) report.Runs {
		for _, x := range runs {
			x.Load[0].StepTimes = []steptimes.Summary{{Source: source, Name: source,
				Expected: &measured.Error{Rows: 41, TTFT: 0.05, TPOT: 0.14}}}
		}
		return runs
	}
	c := comparedScenarios[0]
	slower := scenario.Setting{Path: "pools[0].modelServer.jitter.factor", Value: "1.1"}
	for source, want := range map[string]string{"A": "", "B": "; the expected error of the step times could turn " +
		"tpot mean (±14%), e2e mean (±14%)"} {
		x := comparison.Of([]comparison.Side{{Name: "a"}, {Name: "b"}},
			[]report.Runs{with(c.runs(t, 1), "A"), with(c.runs(t, 1, slower), source)}, record.SLO{},
			[]string{"tpot mean", "e2e mean", "ttft mean"})
		if got := x.Comparisons[0].Verdict; want == "" && strings.Contains(got, "could turn") ||
			!strings.HasSuffix(got, want) || !strings.Contains(got, "worse than a: ttft mean") {
			t.Errorf("%s: %s; expected %q at the end", source, got, want)
		}
		if want := "A: TPOT ±14 % on 41 measured configurations; TTFT ±5 %"; x.Variants[0].StepTimes != want {
			t.Errorf("found %q, expected %q", x.Variants[0].StepTimes, want)
		}
	}

	e := report.StepErrorOf(with(c.runs(t, 1), "A")[0].Load)
	rate := Capacity{Find: FindRate, Keeps: 10, Answer: "up to 10 requests/s"}
	replicas := Capacity{Find: FindReplicas, Replicas: 8}
	none := Capacity{Find: FindRate}
	for x, want := range map[*Capacity]string{&rate: "; times that far off make it about 8.772 to 11.4 requests/s",
		&replicas: "; times that far off make it about 8 to 10 replicas", &none: ""} {
		x.doubt(&e)
		var b bytes.Buffer
		if err := x.Write(&b, 0); err != nil || !strings.Contains(b.String(), "steps    "+e.Text+want+"\n") {
			t.Errorf("%v; expected %q in\n%s", err, want, b.String())
		}
	}
	var b bytes.Buffer
	if err := (&Swept{points: []*Point{{StepTimes: "X"}, {StepTimes: "X"}, {}}}).Write(&b, "text", 0); err != nil ||
		!strings.HasSuffix(b.String(), "\nstep times of X\n") || strings.Count(b.String(), "step times of") != 1 {
		t.Error(err, b.String())
	}
}

// The verdict is the first line, red on a terminal where something is worse and without colour elsewhere, and
// names from outside steer no terminal.
func TestCompareColours(t *testing.T) {
	c := comparedScenarios[0]
	slower := scenario.Setting{Path: "pools[0].modelServer.jitter.factor", Value: "1.1"}
	x := comparison.Of([]comparison.Side{{Name: "a"}, {Name: "b\x1b[2J"}},
		[]report.Runs{c.runs(t, 1), c.runs(t, 1, slower)}, record.SLO{}, []string{"tpot mean"})
	for paint, want := range map[bool]string{
		true:  "\x1b[31mb\\u001b[2J is worse than a: tpot mean +10.",
		false: "b\\u001b[2J is worse than a: tpot mean +10.",
	} {
		var out bytes.Buffer
		if err := x.Write(&out, terminal.Paint(paint), 0); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.HasPrefix(text, want) || strings.Contains(text, "\x1b[2J") ||
			strings.Contains(text, "\x1b") != paint {
			t.Errorf("with colour %v it begins with %q, expected %q", paint, text[:min(len(text), 80)], want)
		}
	}
}
