package virtual

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

func parse(t *testing.T, pool, workload string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml",
		[]byte("{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a, "+pool+"}], workload: {"+workload+
			"}}"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every step of a group over two nodes is in the record when it is asked for,
// with what its fabric cost, and changes nothing else.
func TestEngineSteps(t *testing.T) {
	const load = "requests: 20, rate: 20, prompt: {characters: 800}"
	pool := "model: llama-70b, modelServer: {batching: continuous, accelerator: A100, tensorParallelSize: 4, nodes: " +
		"2, outputTokens: 10..30, engineSteps: %}"
	quiet := recorded(t, parse(t, strings.Replace(pool, "%", "none", 1), load))
	var loud []record.Event
	steps, tokens := 0, 0
	for _, e := range recorded(t, parse(t, strings.Replace(pool, "%", "phases", 1), load)) {
		if e.Step != record.EngineStep {
			loud = append(loud, e)
			continue
		}
		steps++
		tokens += e.Details.Get("decode_seqs").(int)
		whole := e.Details.Get("compute_us").(float64) + e.Details.Get("broadcast_us").(float64) +
			e.Details.Get("gather_us").(float64) +
			float64(e.Details.Get("all_reduces").(int))*e.Details.Get("all_reduce_us").(float64)
		if took := e.Details.Get("took_us").(float64); whole < took-1 || whole > took+1 {
			t.Fatalf("parts of %v us in a step of %v us", whole, took)
		}
	}
	if err := record.Same(quiet, loud); err != nil {
		t.Fatal(err)
	}
	for i := range quiet {
		if quiet[i].Time != loud[i].Time {
			t.Fatalf("recording steps moved %v to %v", quiet[i], loud[i])
		}
	}
	made := 0
	for _, e := range quiet {
		if e.Step == record.LastTokenSent {
			made += e.Details.Get("tokens").(int) - 1 // the first comes with the prompt
		}
	}
	if steps == 0 || tokens != made {
		t.Fatalf("%d steps made %d tokens, the answers have %d", steps, tokens, made)
	}
}

// A recorded step stands among the events of its time.
func TestEngineStepsInOrder(t *testing.T) {
	pool := "replicas: 2, model: llama-3.1-8b, modelServer: {batching: continuous, accelerator: H100, engineSteps: " +
		"steps}"
	steps, now := 0, machine.Time(0)
	for _, e := range recorded(t, parse(t, pool, "requests: 40, rate: 9")) {
		if e.Time < now {
			t.Fatalf("after an event at %v comes %+v", now, e)
		}
		if now = e.Time; e.Step == record.EngineStep {
			steps++
		}
	}
	if steps == 0 {
		t.Error("no step is recorded")
	}
}

// A slower wire between nodes makes the same requests slower.
func TestInterconnect(t *testing.T) {
	last := record.Event{}
	for _, fabric := range []string{"", "nodes: 2, ", "nodes: 2, interconnect: {between: ethernet-10}, "} {
		events := recorded(t, parse(t,
			"model: llama-70b, modelServer: {batching: continuous, accelerator: A100, tensorParallelSize: 4, "+fabric+
				"outputTokens: 32}", "requests: 10"))
		end := events[len(events)-1]
		if end.Time <= last.Time {
			t.Fatalf("with %q the run ends at %v, with faster fabric at %v", fabric, end.Time, last.Time)
		}
		last = end
	}
}

// Servers that do not fit are killed again and again: every request ends as
// unavailable, and says why.
func TestOOMKilled(t *testing.T) {
	events := recorded(t, parse(t, "model: llama-70b, modelServer: {batching: continuous, oom: restart}",
		"requests: 5"))
	if got := outcomes(events); got["unavailable"] != 5 {
		t.Fatal(got)
	}
	for _, e := range events {
		if e.Step == record.Rejected && !strings.Contains(e.Details.Get("reason").(string), "128.77 GiB") {
			t.Fatal(e)
		}
	}
}
