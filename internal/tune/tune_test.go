package tune

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
)

// picked is a scenario with a picker that has scorers, a parameter, and prefill servers where %s adds them.
const picked = `apiVersion: windtunnel/v1alpha1
kind: Scenario
name: picked
pools:
  - name: chat
    model: llama-3.1-8b
    replicas: 3
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 4..28}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
          - {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 16}}
          - type: prefix-cache-scorer
          - type: queue-scorer
          - type: max-score-picker
        schedulingProfiles:
          - name: default
            plugins:
              - {pluginRef: prefix-cache-scorer, weight: 3}
              - {pluginRef: queue-scorer, weight: 1}
              - {pluginRef: max-score-picker}
workload: {requests: 30, rate: 60, maxTokens: 28, prompt: {characters: 400, shared: {groups: 3, characters: 800}}}
`

// smallest returns the options of a search with few and short runs.
func smallest(texts ...string) Options {
	o := Options{Runs: 20, Replications: 3, Indifference: 0.01, Seed: 1}
	for i, text := range texts {
		o.Variants = append(o.Variants, search.Variant{Name: fmt.Sprint("scenario ", i), File: "s.yaml",
			Text: []byte(text)})
	}
	return o
}

func found(t *testing.T, o Options) *Tuned {
	t.Helper()
	out, err := Tune(t.Context(), &search.Player{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// text returns a result as JSON and as text.
func text(t *testing.T, x *Tuned) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(x); err != nil {
		t.Fatal(err)
	}
	if err := x.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A search that is interrupted at any run, and continues with the runs of its directory, has the result of one that is
// not. So have two processes that share the runs, and the one that collects them.
func TestResults(t *testing.T) {
	o := smallest(picked)
	whole := text(t, found(t, o))
	for _, after := range []int{1, 60} {
		o := o
		o.Results = filepath.Join(t.TempDir(), "runs")
		ctx, stop := context.WithCancel(t.Context())
		ended := 0
		p := &search.Player{Progress: func(string, int, int) {
			if ended++; ended > after {
				stop()
			}
		}}
		if _, err := Tune(ctx, p, o); err == nil {
			t.Fatalf("the search was not interrupted after %d runs", after)
		}
		before := runs(t, o.Results)
		var list sync.WaitGroup
		for i := range 2 {
			list.Go(func() {
				o := o
				o.Share = search.Share{Index: i, Of: 2}
				if out, err := Tune(t.Context(), &search.Player{}, o); err != nil || text(t, out) != whole {
					t.Errorf("share %d of 2, interrupted after %d runs: %v", i, after, err)
				}
			})
		}
		list.Wait()
		all := runs(t, o.Results)
		o.Collect = true
		if got := text(t, found(t, o)); got != whole || runs(t, o.Results) != all || all <= before {
			t.Errorf("interrupted after %d runs: found %s; expected %s; %d, %d and then %d files", after, got, whole,
				before, all, runs(t, o.Results))
		}
		o.Keep = []string{"completed>=1%"}
		if _, err := Tune(t.Context(), &search.Player{}, o); !errors.Is(err, search.ErrAbsent) {
			t.Errorf("the runs of another search: found %v", err)
		}
	}
	o.Time, o.Share = time.Minute, search.Share{Of: 2}
	if _, err := Tune(t.Context(), &search.Player{}, o); err == nil ||
		!strings.Contains(err.Error(), "--time and --share") {
		t.Errorf("found %v", err)
	}
}

// runs returns the number of runs in a directory.
// Processes that share a search play its runs together, those with values that are no scenario among them, and each has
// the result of one process, as has the one that collects.
func TestRefusedInShares(t *testing.T) {
	o := smallest(picked)
	o.Vary = []string{"pools[0].modelServer.maxNumSeqs=16,512", "pools[0].modelServer.maxNumBatchedTokens=256,2048"}
	whole := text(t, found(t, o))
	o.Results = filepath.Join(t.TempDir(), "shared")
	o.Share.Of = 3
	var shares sync.WaitGroup
	for i := range o.Share.Of {
		o := o
		o.Share.Index = i
		shares.Go(func() {
			if got := text(t, found(t, o)); got != whole {
				t.Errorf("share %d: found %s; expected %s", i, got, whole)
			}
		})
	}
	shares.Wait()
	list, err := filepath.Glob(filepath.Join(o.Results, "run-*"))
	if err != nil || !slices.ContainsFunc(list, func(run string) bool {
		data, err := os.ReadFile(run)
		return err == nil && bytes.Contains(data, []byte(`"Refused":"`))
	}) {
		t.Errorf("none of %d runs is refused, %v; expected small batches of many", len(list), err)
	}
	o.Share, o.Collect = search.Share{}, true
	if got := text(t, found(t, o)); got != whole {
		t.Errorf("collected %s; expected %s", got, whole)
	}
}

func runs(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Several scenarios: the objective of a candidate is the mean, the worst, or the weighted mean.
func TestSeveralScenarios(t *testing.T) {
	a := outcome{Score: Score{Values: [2]float64{1, -8}}, Measures: map[string]float64{"ttft p50": 1}}
	b := outcome{Score: Score{Violation: 2, Values: [2]float64{5, -16}}, Measures: map[string]float64{"ttft p50": 2,
		"goodput": 4}}
	for combine, want := range map[string][2]float64{"": {3, -12}, "mean": {3, -12}, "worst": {5, -8}, "3,1": {2, -10},
		"0,2": {5, -16}} {
		weights, err := parseCombine(combine, 2)
		x := (&tuner{weights: weights}).combine([]outcome{a, b})
		if err != nil || x.Values != want || x.Violation != 2 || x.Measures["ttft p50"] != 1.5 ||
			x.Measures["goodput"] != 4 {
			t.Errorf("--combine %s: found %+v, %v; expected %v", combine, x, err, want)
		}
	}
	if x := (&tuner{}).combine([]outcome{a, {Score: impossible}}); x.possible() {
		t.Errorf("a candidate that one scenario cannot play has the score %+v", x.Score)
	}
	for _, combine := range []string{"best", "1", "0,0", "1,-1", "1,NaN", "1,2,3"} {
		if _, err := parseCombine(combine, 2); err == nil || !strings.Contains(err.Error(), "--combine") {
			t.Errorf("--combine %s: found %v", combine, err)
		}
	}
	o := smallest(picked, strings.Replace(picked, "pools:\n", "pools:\n  - {name: b, model: b, replicas: 1}\n", 1))
	if _, err := Tune(t.Context(), &search.Player{}, o); err == nil || !strings.Contains(err.Error(), "same pools") {
		t.Errorf("scenarios with other pools: found %v", err)
	}
}

// The search sees the beginning of a trace, and the runs that decide play the rest. The scenario without a trace is
// played whole.
func TestHoldOut(t *testing.T) {
	dir := t.TempDir()
	trace := "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for i := range 20 {
		trace += fmt.Sprintf("2023-11-16 18:17:%02d.0000000,%d,%d\n", 3+i, 100+i, 5)
	}
	if err := os.WriteFile(filepath.Join(dir, "t.csv"), []byte(trace), 0o600); err != nil {
		t.Fatal(err)
	}
	traced, _, _ := strings.Cut(picked, "workload:")
	o := smallest(traced+"workload: {trace: {file: t.csv}}\n", picked)
	for i := range o.Variants {
		o.Variants[i].File = filepath.Join(dir, "s.yaml")
	}
	o.HoldOut, o.Runs, o.Objectives, o.Combine = 0.4, 8, []string{"min:requests"}, "1,0"
	o.Vary = []string{"pools[0].modelServer.maxNumSeqs=256,257"}
	out := found(t, o)
	if r := out.Candidates[0].Results[0]; r != 12 {
		t.Errorf("the search plays %v requests of 20; expected 12", r)
	}
	if r := out.Today.Results[0].Value; r != 8 {
		t.Errorf("the runs that decide play %v requests of 20; expected 8", r)
	}
	o.HoldOut = 0.95
	if _, err := Tune(t.Context(), &search.Player{}, o); err == nil || !strings.Contains(err.Error(), "--hold-out") {
		t.Errorf("a search that sees 5 %%: found %v", err)
	}
}

// What varies changes what is played, and wrong values are refused before the first run.
func TestVaries(t *testing.T) {
	split := strings.Replace(picked, "    epp:\n",
		"    sidecar: routing\n    disaggregation: {prefillReplicas: 1}\n    epp:\n", 1)
	space := func(text string, vary ...string) (*space, error) {
		return newSpace(smallest(text).Variants, vary, nil, 1)
	}
	x, err := space(picked, "approx-prefix-cache-producer/blockSizeTokens=32,64", Weights)
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.scenario(0, &job{values: []string{"64", "2", "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := string(s.Pools[0].EPP.Config.Text); !strings.Contains(c, "blockSizeTokens: 64") ||
		!strings.Contains(c, "weight: 2") || strings.Contains(c, "pluginRef: queue-scorer") {
		t.Errorf("found the configuration %s", c)
	}
	// Without a range, a knob has the one that the checks accept.
	for vary, want := range map[string]string{"pools[0].replicas": "1 to 16384, []",
		"pools[0].modelServer.gpuMemoryUtilization":    "0.25 to 0.5, []",
		"approx-prefix-cache-producer/blockSizeTokens": "1 to 1.048576e+06, []",
		"approx-prefix-cache-producer/autoTune":        "0 to 0, [true false]"} {
		x, err := space(picked, vary)
		if err != nil {
			t.Fatalf("%s: %v", vary, err)
		}
		if k := &x.knobs[0]; fmt.Sprintf("%v to %v, %v", k.Low, k.High, k.Values) != want {
			t.Errorf("%s: found %v to %v, %v; expected %s", vary, k.Low, k.High, k.Values, want)
		}
	}
	if _, err := space(picked, "approx-prefix-cache-producer/blockSizeToken"); err == nil ||
		!strings.Contains(err.Error(), "blockSizeTokens") {
		t.Errorf("a parameter that does not exist: found %v", err)
	}
	if x, err = space(split, Split); err != nil {
		t.Fatal(err)
	}
	if s, err = x.scenario(0, &job{values: []string{x.knobs[0].text(0.9)}}); err != nil || x.knobs[0].Today != "1:3" ||
		s.Pools[0].Disaggregation.PrefillReplicas != 3 || s.Pools[0].Servers() != 4 {
		t.Errorf("a split of %+v, %v: found %d prefill servers", x.knobs[0], err,
			s.Pools[0].Disaggregation.PrefillReplicas)
	}
}

// Wrong values are refused before the first run, with the file or the flag, the field, and what was expected. Those of
// the scenario's section tune have their place in the file.
func TestWrongValues(t *testing.T) {
	p := &search.Player{Progress: func(what string, _, _ int) { t.Errorf("a search began to play %s", what) }}
	vary := func(list ...string) Options { return Options{Vary: list} }
	for _, x := range []struct {
		o    Options
		want string
	}{
		{vary("no-scorer/weight=1,2"), "--vary no-scorer/weight: s.yaml: no picker has a plug-in no-scorer; expected " +
			"a parameter of one of approx-prefix-cache-producer, prefix-cache-scorer, queue-scorer, max-score-picker"},
		{vary("queue-scorrer/weight=1,2"), `did you mean "queue-scorer"?`},
		{vary("queue-scorer/weight=1..2"), "--vary queue-scorer/weight: s.yaml: the plug-in takes no parameters"},
		{vary("/weight=1..2"), "the plug-in or its parameter has no name"},
		{vary("queue-scorer/=1..2"), "the plug-in or its parameter has no name"},
		{vary("approx-prefix-cache-producer/blockSizeToken=16,32"), "--vary approx-prefix-cache-producer/" +
			"blockSizeToken: s.yaml: pools[0].epp.config.plugins[0].parameters.blockSizeToken: unknown field; " +
			"expected one of "},
		{vary("approx-prefix-cache-producer/blockSizeToken=16,32"), `did you mean "blockSizeTokens"?`},
		{vary("approx-prefix-cache-producer/blockSizeTokens.deep=16,32"), "parameters.blockSizeTokens: found"},
		{vary("approx-prefix-cache-producer/blockSizeTokens=16,a,32"), `parameters.blockSizeTokens: found "a"; expected`},
		{vary("pools[0].epp.config.plugins[0].parameters.blockSizeToken=16,32"), "s.yaml with --set pools[0]." +
			"epp.config.plugins[0].parameters.blockSizeToken=16: "},
		{vary("pools[0].epp.config.plugins[2].parameters.most=16,32"), "s.yaml: the plug-in takes no parameters"},
		{vary("pools[0].modelServer.maxNumSeq=1,2"), `maxNumSeq: unknown field; expected one of`},
		{vary("pools[1].replicas=1,2"), "pools[1].replicas: the file has 1 entries there"},
		{vary("pools[0].replicas=0,x"), "pools[0].replicas"},
		{vary("pools[0].replicas=2,x,3"), `pools[0].replicas: found "x"`},
		{vary("pools[0].replicas=4..2"), "the range is empty"},
		{vary("pools[0].replicas=3..3"), "the range is empty"},
		{vary("pools[0].replicas=1..2", "pools[0].replicas=1..2"), "--vary: pools[0].replicas is given twice"},
		{vary("split"), "--vary split: no pool has prefill servers; expected disaggregation.prefillReplicas above 0"},
		{Options{Where: []string{"queue_scorer > 20"}}, "--where: none of 10,000 random candidates meets"},
		{Options{Where: []string{"servers > 2"}}, "expected a condition over prefix_cache_scorer, queue_scorer"},
		{Options{Where: []string{"queue_scorer + 1"}}, "--where: "},
		{Options{Objectives: []string{"speed"}}, `--objective speed: found "speed"; expected measures`},
		{Options{Objectives: []string{"max:classes"}}, "--objective max:classes: "},
		{Options{Objectives: []string{"goodput"}}, "--objective goodput: nothing says which answers are good"},
		{Options{Keep: []string{"ttft.p95 <= soon"}}, `--keep: found "soon" as the bound of ttft p95`},
		{Options{Keep: []string{"ttft.p95"}}, "--keep: "},
		{Options{SLO: []string{"ttft"}}, "--slo: "},
		{Options{Runs: -1}, "--runs: found -1; expected a whole number, from 1 to 100000"},
		{Options{Indifference: 1}, "--indifference: found 100 percent"},
		{Options{HoldOut: 1}, "--hold-out: found 100 percent"},
		{Options{Replications: 2}, "--replications"},
		{Options{Combine: "1,2"}, "--combine: found 2 weights"},
		{Options{Division: search.Division{Share: search.Share{Of: 2}, Results: "x"}, Time: 1}, "--time and --share"},
	} {
		o := x.o
		o.Variants, o.Seed = smallest(picked).Variants, 1
		o.Runs, o.Replications = cmp.Or(o.Runs, 20), cmp.Or(o.Replications, 3)
		out, err := Tune(t.Context(), p, o)
		if out != nil || err == nil || !strings.Contains(err.Error(), x.want) || exit.Of(err) == exit.Failed {
			t.Errorf("%+v: found %v; expected %s", x.o, err, x.want)
		}
	}
	for section, want := range map[string]string{
		"vary: [queue-scorer/weight=1..2]": "s.yaml:25:14: tune.vary: queue-scorer/weight: s.yaml: the plug-in takes",
		"where: [queue_scorer > 20]":       "s.yaml:25:15: tune.where: none of 10,000",
		"objective: [speed]":               `s.yaml:25:19: tune.objective: speed: found "speed"`,
		"keep: [ttft.p95]":                 "s.yaml:25:14: tune.keep: ",
		"objectives: [speed]":              `tune.objectives: unknown field; expected one of vary, where, objective, keep`,
	} {
		_, err := Tune(t.Context(), p, smallest(picked+"tune: {"+section+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) || exit.Of(err) != exit.Input {
			t.Errorf("tune: {%s}: found %v; expected %s", section, err, want)
		}
	}
}

// A scenario's section tune says what is searched, and flags replace its fields.
func TestSection(t *testing.T) {
	o := smallest(picked + "tune: {vary: [\"pools[0].replicas=1..2\"], objective: [ttft.p90], keep: [completed>=1%]}\n")
	if out := found(t, o); out.Knobs[0].Name != "pools[0].replicas" || out.Objectives[0] != "ttft p90" {
		t.Errorf("found the objectives %v over %+v", out.Objectives, out.Knobs)
	}
	o.Vary = []string{Weights}
	if out := found(t, o); out.Knobs[0].Name != "default/prefix-cache-scorer" || out.Objectives[0] != "ttft p90" {
		t.Errorf("with --vary: found the objectives %v over %+v", out.Objectives, out.Knobs)
	}
}

// The tables of a search with long names and many knobs stay within 80 columns.
func TestWidth(t *testing.T) {
	o := smallest(picked)
	o.Vary = []string{Weights, "pools[0].epp.config.plugins[0].parameters.blockSizeTokens=16,64"}
	o.Objectives = []string{"ttft.p99", "output.tokens/s"}
	out := found(t, o)
	out.StepTimes = ""
	for len(out.Best) < mostFront {
		out.Best = append(out.Best, out.Best[0])
	}
	var b strings.Builder
	if err := out.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(b.String(), "\n\n")
	tables, _, _ = strings.Cut(tables, "# the picker")
	for line := range strings.Lines(tables) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	b.Reset()
	if err := out.WriteTable(&b, false); err != nil || !strings.HasPrefix(b.String(), "of,default/") ||
		strings.Count(b.String(), "\n") != 1+len(out.Candidates)+1+len(out.Best) {
		t.Errorf("found %v and the table %s", err, b.String())
	}
	header, _, _ := strings.Cut(b.String(), "\n")
	rows := int64(strings.Count(b.String(), "\n") - 1)
	b.Reset()
	if err := out.WriteTable(&b, true); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(strings.NewReader(b.String()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, field := range f.Schema().Fields() {
		names = append(names, field.Name())
	}
	if !slices.Equal(names, strings.Split(header, ",")) || f.NumRows() != rows {
		t.Errorf("found %d rows of %v as Parquet; expected %d of %s", f.NumRows(), names, rows, header)
	}
	if slices.ContainsFunc(out.Candidates, func(c Candidate) bool { return len(c.Results) != 2 }) {
		t.Errorf("found candidates %+v", out.Candidates)
	}
}

// timed is a scenario in which a request takes 100 ms to its first token and 10 ms for each further one.
const timed = `apiVersion: windtunnel/v1alpha1
kind: Scenario
name: timed
pools:
  - {name: chat, replicas: 2, modelServer: {prefill: 100ms, interTokenLatency: 10ms, outputTokens: 10}}
workload: {requests: 6, rate: 5}
`

// Two knobs whose effects add up do not depend on each other, and two whose effects multiply do.
func TestPairs(t *testing.T) {
	for objective, want := range map[string]int{"min:ttft_mean + tpot_mean": 0, "min:ttft_mean * tpot_mean": 1} {
		o := smallest(timed)
		o.Objectives = []string{objective}
		o.Vary = []string{"pools[0].modelServer.prefill=50ms,100ms,200ms",
			"pools[0].modelServer.interTokenLatency=5ms,10ms,20ms"}
		out := found(t, o)
		if len(out.Pairs) != want || !out.Sensitivity[0].Matters || !out.Sensitivity[1].Matters {
			t.Errorf("%s: found the pairs %+v, and %+v; expected %d pairs", objective, out.Pairs, out.Sensitivity, want)
		}
		if want > 0 && len(out.Pairs) == 1 {
			// From the best, 50 ms and 5 ms, four times of each make 16 times, and the sum of both changes is 7 times.
			if p := out.Pairs[0]; math.Abs(p.Together+8.5) > 0.5 ||
				!strings.Contains(text(t, out), "depend on each other") {
				t.Errorf("found %+v; expected -8 to -9 together", p)
			}
		}
	}
}

// A gain that step times within the model's expected error take away is named, and one that they leave is not.
func TestDoubt(t *testing.T) {
	o := smallest(
		strings.NewReplacer(
			"prefill: 100ms, interTokenLatency: 10ms",
			"batching: continuous, accelerator: H100",
			"name: chat,",
			"name: chat, model: llama-3.1-8b,",
			"rate: 5",
			"rate: 1, prompt: {characters: 8000}",
		).Replace(timed),
	)
	o.Vary, o.Objectives = []string{"workload.prompt.characters=8000,16000"}, []string{"max:ttft.mean"}
	out := found(t, o)
	if !out.Better || out.Doubt != "" {
		t.Fatalf("found %q and the doubt %q; expected a gain, and none", out.Verdict, out.Doubt)
	}
	o.Objectives = []string{fmt.Sprintf("max:ttft_mean < %v ? ttft_mean : 0", 1.05*out.Best[0].Results[0].Value)}
	out = found(t, o)
	if !out.Better || !strings.HasPrefix(out.Doubt, "with step times ") ||
		!strings.Contains(out.Doubt, "longer, which") {
		t.Errorf("found %q and the doubt %q; expected a gain that longer step times take away", out.Verdict, out.Doubt)
	}
	if lines := strings.Split(text(t, out), "\n"); !slices.Contains(lines, out.Doubt) {
		t.Errorf("found %q; expected the doubt", lines)
	}
}

// Two scenarios have one verdict, over the mean of both.
func TestOneVerdict(t *testing.T) {
	slow := strings.NewReplacer("name: timed", "name: slow", "prefill: 100ms", "prefill: 300ms").Replace(timed)
	value := func(combine string) (today float64) {
		o := smallest(timed, slow)
		o.Combine, o.Objectives = combine, []string{"ttft.mean"}
		o.Vary = []string{"pools[0].modelServer.interTokenLatency=5ms,10ms"}
		out := found(t, o)
		if got := text(t, out); !slices.Equal(out.Others, []string{"slow"}) || out.Better ||
			!strings.Contains(got, "\nscenarios: timed, slow\n") {
			t.Errorf("--combine %s: found %s", combine, got)
		}
		return out.Today.Results[0].Value
	}
	if a, b, mean := value(
		"1,0",
	), value(
		"0,1",
	), value(
		"mean",
	); !(a > 0.09 && b > 2*a) ||
		math.Abs(mean-(a+b)/2) > 1e-4 {
		t.Errorf("found %v and %v alone, and the mean %v", a, b, mean)
	}
}

// An interrupted search returns its best candidate with an error, and the text says that no fresh seed confirmed it.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := &search.Player{Progress: func(what string, _, _ int) {
		if what == "runs that decide" {
			stop()
		}
	}}
	o := smallest(timed)
	o.Objectives, o.Vary = []string{"ttft.mean"}, []string{"pools[0].modelServer.prefill=50ms,100ms,200ms"}
	out, err := Tune(ctx, p, o)
	if out == nil || exit.Of(err) != exit.Interrupted {
		t.Fatalf("found %+v, %v; expected an interrupted search", out, err)
	}
	if got := text(t, out); !out.Interrupted || out.Best[0].Values[out.Knobs[0].Name] != "50ms" ||
		!strings.Contains(got, "\ninterrupted: the best so far, which no fresh seed has confirmed\n") ||
		!strings.Contains(got, "50ms") {
		t.Errorf("found %s", got)
	}
}
