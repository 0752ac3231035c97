package search

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

const (
	oneQueue = `{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: default, flow: plain, replicas: 1,
		modelServer: {batching: none, interTokenLatency: 1ms, prefill: 1ms,
			outputTokens: 'exponential(100, min=1, max=10000)'}}],
		workload: {requests: 500, rate: 5, timeout: 24h}}`
	// Its truth is searched from 27 to 35 requests/s, which the measured step times allow.
	twoEngines = `{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: pool, flow: plain, replicas: 2,
		model: llama-3.1-8b, modelServer: {batching: continuous, accelerator: H100, source: measured, maxNumSeqs: 8,
			outputTokens: 'exponential(50, min=1, max=1000)'}}],
		workload: {requests: 500, rate: 10, timeout: 24h, prompt: {characters: 500..6000}}}`
)

// bruteForce returns the rate at which the mean time to the last token is so many seconds, by many long runs.
func bruteForce(t *testing.T, file string, low, high, seconds float64) float64 {
	o, err := parseObjectives([]string{fmt.Sprintf("e2e.mean=%vs", seconds)})
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadVariant(nil, file, nil, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	requests, all := 40_000, 1_000_000
	for high/low > 1.003 {
		rate := math.Sqrt(low * high)
		runs := make([]Run, 8)
		if err := Each(len(runs), func(i int) error {
			s, err := v.Scenario(1_000_000 + i)
			if err != nil {
				return err
			}
			if err := s.Override(scenario.Overrides{Rate: &rate, Requests: &requests, Concurrency: &all}); err != nil {
				return err
			}
			var list []report.Ended
			_, err = new(Player).Play(context.Background(), s, func(e *report.Ended) { list = append(list, *e) })
			runs[i] = observed(list, o[:1], record.SLO{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if x := Judge([]Objective{o[0].rule(true)}, runs); x.Estimates[0].Value <= seconds {
			low = rate
		} else {
			high = rate
		}
	}
	return math.Sqrt(low * high)
}

// A trace of regular requests settles at each rate below its server's capacity, so the objective or the capacity bounds
// the rate.
func TestCapacityOfARegularTrace(t *testing.T) {
	dir := t.TempDir()
	var trace strings.Builder
	for i := range 300 {
		fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": 100, "output_length": 10, "hash_ids": [%d]}`+"\n", 100*i, i)
	}
	file := filepath.Join(dir, "mine.yaml")
	for name, text := range map[string]string{"trace.jsonl": trace.String(), "mine.yaml": `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: default, flow: plain, replicas: 1, modelServer: {batching: continuous, accelerator: H100, source: measured, model: llama-3.1-8b}}]
workload: {trace: {file: trace.jsonl, format: mooncake}}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v, err := ReadVariant(nil, file, nil, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := new(Player).Capacity(context.Background(), CapacityOptions{Variant: v,
		Objectives: []string{"ttft.p90=200ms"},
		Find:       FindRate, Duration: 30 * time.Second, Precision: 5, Replications: 3, MaxReplicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range x.Loads { // below half of what the server can take, as many steps say
		if l.Rate < 150 && l.look.Verdict == Misses {
			t.Errorf("%v requests/s miss: %s", l.Rate, l.Why)
		}
	}
	if x.Keeps < 300 || x.Keeps > 420 {
		t.Errorf("%v requests/s keep 200 ms, expected 300 to 420: %s", x.Keeps, x.Answer)
	}
}

// A run reports whether it settles, also without a trace.
func TestPlayedRunsSayWhetherTheySettle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(oneQueue), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := ReadVariant(nil, file, nil, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	k := &seeker{c: &CapacityOptions{Variant: v}, ctx: context.Background(), player: new(Player),
		store: new(Division).Store()}
	for rate, unsettled := range map[float64]bool{3: false, 20: true} { // of 9.92/s that the server can take
		_, runs, err := k.play(&v, Load{Rate: rate, Requests: 1000}, []int{1})
		if err != nil || runs[0].Unsettled != unsettled {
			t.Errorf("%v requests/s: unsettled is %v (%v), expected %v", rate, runs[0].Unsettled, err, unsettled)
		}
	}
}

// The answers are below the true values, which queueing theory gives for a queue (other tests play the rule alone with
// more queues), and long runs give for engines that batch.
func TestStatisticsOfCapacity(t *testing.T) {
	all := os.Getenv("WINDTUNNEL_STATISTICS") == "all"
	for _, c := range []struct {
		name, text, slo string
		few, many       int
		truth           func(file string) float64
	}{
		// Services of 100.8 ms on average (virtual's test of queues): a mean wait of 400 ms is that of a load of 79.9
		// %.
		{"a queue", oneQueue, "ttft.mean=401ms", 1, 20, func(string) float64 { return 400. / (400 + 100.8) / 0.1008 }},
		{"engines", twoEngines, "e2e.mean=500ms", 0, 200,
			func(file string) float64 { return bruteForce(t, file, 27, 35, 0.5) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := c.few
			if all {
				n = c.many
			}
			if n == 0 {
				t.Skip("make test-statistics plays it")
			}
			file := filepath.Join(t.TempDir(), "mine.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			truth := c.truth(file)
			var answers []float64
			wrong, played := 0, 0
			for i := range n {
				seed := uint64(10_000 * (i + 1))
				v, err := ReadVariant(nil, file, nil, scenario.Overrides{Seed: &seed})
				if err != nil {
					t.Fatal(err)
				}
				x, err := new(Player).Capacity(context.Background(), CapacityOptions{Variant: v,
					Objectives: []string{c.slo},
					Find:       FindRate, Duration: 30 * time.Second, Precision: 5, Replications: 12, MaxReplicas: 256})
				if err != nil {
					t.Fatal(err)
				}
				answers, played = append(answers, x.Keeps/truth), played+x.Requests
				if x.Keeps > truth {
					wrong++
				}
			}
			slices.Sort(answers)
			median, tenth := answers[n/2], answers[n/10]
			t.Logf("%d of %d above the truth of %.4g/s; the median is %.3f of it and the 10th percentile %.3f; %d "+
				"requests",
				wrong, n, truth, median, tenth, played/n)
			if most := max(1, 17*n/200); wrong > most {
				t.Errorf("%d of %d answers are above the truth, expected at most %d", wrong, n, most)
			}
			if n == 200 && (median < 0.96 || tenth < 0.9) || median < 0.85 {
				t.Errorf("the median is %.3f of the truth and the 10th percentile %.3f, expected 0.96 and 0.9", median,
					tenth)
			}
		})
	}
}
