package imports

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// counter is a series of one minute's steps.
func counter(name string, values ...float64) Series {
	name, le, _ := strings.Cut(name, " ")
	x := Series{Labels: map[string]string{"__name__": name, "le": le}, Values: values}
	for i := range values {
		x.Times = append(x.Times, float64(60*i))
	}
	return x
}

// Rates, lengths and cached tokens are those of the counters, also where a process began again. The picker's counters
// come before the model servers', which count a request with two legs twice.
func TestClusterMetrics(t *testing.T) {
	c := Cluster{Metrics: []Series{
		counter("inference_objective_request_total", 100, 160, 30),
		counter("vllm:request_success_total", 0, 500, 900),
		counter("vllm:request_prompt_tokens_bucket 100", 0, 0, 30),
		counter("vllm:request_prompt_tokens_bucket 300", 0, 60, 90),
		counter("vllm:request_prompt_tokens_bucket +Inf", 0, 60, 90),
		counter("vllm:request_prompt_tokens_sum", 0, 10000, 18000),
		counter("vllm:request_prompt_tokens_count", 0, 60, 90),
		counter("vllm:prefix_cache_queries_total", 0, 10000, 18000),
		counter("vllm:prefix_cache_hits_total", 0, 4000, 4500),
	}}
	s, err := c.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	text := string(s.Text)
	for _, want := range []string{"{duration: 60s, rate: 1}", "{duration: 60s, rate: 0.5}", "characters: 200}",
		"a mean of 200 tokens where 200 were measured", "no histogram of answers' lengths",
		"25.0 % of all prompt tokens"} {
		if !strings.Contains(text, want) {
			t.Errorf("found %s\nexpected %q", text, want)
		}
	}
	if _, err := scenario.Parse("it", s.Text); err != nil {
		t.Error(err)
	}
	c.Metrics = []Series{counter("vllm:request_success_total", 7, 7)}
	if _, err := c.Scenario(); err == nil || !strings.Contains(err.Error(), "does not grow in 2 values") {
		t.Errorf("found %v", err)
	}
}

// Any numbers give a scenario that parses, or an error.
func FuzzCluster(f *testing.F) {
	f.Add(100.0, 160.0, 5000.0, 60.0, 0.5)
	f.Add(0.0, 1e300, -1.0, 1e-9, 2.0)
	f.Fuzz(func(t *testing.T, first, last, sum, inside, hits float64) {
		c := Cluster{Metrics: []Series{counter("vllm:request_success_total", first, last, sum),
			counter("vllm:request_prompt_tokens_bucket 64", 0, inside),
			counter("vllm:request_prompt_tokens_bucket +Inf", 0, last),
			counter("vllm:request_prompt_tokens_sum", 0, sum), counter("vllm:request_prompt_tokens_count", 0, last),
			counter("vllm:prefix_cache_queries_total", 0, sum), counter("vllm:prefix_cache_hits_total", 0, hits)}}
		s, err := c.Scenario()
		if err != nil {
			return
		}
		if _, err := scenario.Parse("it", s.Text); err != nil && !strings.Contains(err.Error(), "expected") {
			t.Fatal(err)
		}
	})
}
