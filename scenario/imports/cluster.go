package imports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Cluster describes a cluster: by files of its objects and requests, which the scenario names, and by its metrics.
type Cluster struct {
	// Manifests is the path of a file or directory of Kubernetes objects, "" for none.
	Manifests string
	// Trace is the path of a file of requests in the format TraceFormat (workload.trace.format), "" for none. LogFormat
	// is the json_format of Envoy's access log, "" to know its fields by their names.
	Trace, TraceFormat, LogFormat string
	// Metrics are counters and buckets over time. Requests of a trace have times and lengths of their own.
	Metrics []Series
}

// Series is a time series of Prometheus: its labels with __name__, and its values at times in seconds.
type Series struct {
	Labels        map[string]string
	Times, Values []float64
}

// The metrics that matter, the endpoint picker's first: it counts a request that two model servers share once.
var (
	requestCounts = []string{"llm_d_epp_request_total", "inference_objective_request_total",
		"inference_model_request_total", "vllm:request_success_total"}
	promptLengths = []string{"llm_d_epp_request_input_tokens", "inference_objective_input_tokens",
		"inference_model_input_tokens", "vllm:request_prompt_tokens"}
	answerLengths = []string{"llm_d_epp_request_output_tokens", "inference_objective_output_tokens",
		"inference_model_output_tokens", "vllm:request_generation_tokens"}
	cacheHits    = []string{"vllm:prefix_cache_hits_total"}
	cacheQueries = []string{"vllm:prefix_cache_queries_total"}
)

// Query returns the PromQL of all series that Cluster.Metrics needs.
func Query() string {
	names := slices.Concat(requestCounts, cacheHits, cacheQueries)
	for _, h := range slices.Concat(promptLengths, answerLengths) {
		names = append(names, h+"_(bucket|sum|count)")
	}
	return fmt.Sprintf(`{__name__=~"%s"}`, strings.Join(names, "|"))
}

// maxStages is the largest number of rates of a scenario that metrics give.
const maxStages = 1000

// Scenario returns a scenario with the cluster's pools and requests. Its notes say what the cluster leaves open.
func (c *Cluster) Scenario() (*Scenario, error) {
	m := &maker{manifests: c.Manifests, trace: c.Trace}
	if c.Manifests != "" {
		m.note("the pools are those of %s, whose path is relative to the scenario's own directory", c.Manifests)
	} else {
		m.note("no Kubernetes objects: the pool is one model server; --replicas, --model and --accelerator of " +
			"run, sim and tune say otherwise")
	}
	g := &gauges{maker: m, of: map[string][]Series{}}
	for _, x := range c.Metrics {
		g.of[x.Labels["__name__"]] = append(g.of[x.Labels["__name__"]], x)
	}
	switch {
	case c.Trace != "":
		format := ""
		if c.LogFormat != "" {
			format = fmt.Sprintf(", logFormat: %q", c.LogFormat)
		}
		m.set("trace", "{file: %q, format: %s%s}", c.Trace, c.TraceFormat, format)
		m.note("the requests are those of %s, whose path is relative to the scenario's own directory", c.Trace)
		if len(c.Metrics) > 0 {
			m.note("metrics are left out: the requests of a trace have times and lengths of their own")
		}
	case len(c.Metrics) > 0:
		if err := g.workload(); err != nil {
			return nil, err
		}
	default:
		m.set("requests", "100")
		m.note("neither a trace nor metrics: 100 requests, one after the other")
	}
	return m.scenario("cluster"), nil
}

// gauges writes a workload with the distributions of a cluster's metrics.
type gauges struct {
	*maker
	of map[string][]Series
}

// first returns the first of several names that has series.
func (g *gauges) first(names []string, suffix string) ([]Series, string) {
	for _, name := range names {
		if list := g.of[name+suffix]; len(list) > 0 {
			return list, name
		}
	}
	return nil, ""
}

func (g *gauges) workload() error {
	m := g.maker
	counts, name := g.first(requestCounts, "")
	if counts == nil {
		counts, name = g.first(promptLengths, "_count")
	}
	if counts == nil {
		return fmt.Errorf("the metrics have none of %s; expected the counters of an endpoint picker or of vLLM",
			strings.Join(requestCounts, ", "))
	}
	times, grown := increases(counts)
	total := 0.0
	for _, v := range grown {
		total += v
	}
	if total < 1 {
		return fmt.Errorf("%s does not grow in %d values; expected a time with requests", name, len(times))
	}
	per := (len(grown) + maxStages - 1) / maxStages
	var stages []string
	for i := 0; i < len(grown); i += per {
		end := min(i+per, len(grown))
		sum := 0.0
		for _, v := range grown[i:end] {
			sum += v
		}
		span := times[end] - times[i]
		stages = append(stages, fmt.Sprintf("{duration: %s, rate: %s}", seconds(span), digits(sum/span)))
	}
	m.set("stages", "\n    - %s", strings.Join(stages, "\n    - "))
	whole := times[len(times)-1] - times[0]
	m.note("%s counts %s requests in %s, %s/s on average: arrivals within each of %d stages are Poisson", name,
		digits(total), seconds(whole), digits(total/whole), len(stages))
	if name == "vllm:request_success_total" {
		m.note("model servers count requests at their end, and a request with a prefill and a decode leg twice; the " +
			"metrics of an endpoint picker count arrivals")
	}

	prompts, promptName := g.lengths(promptLengths)
	answers, answerName := g.lengths(answerLengths)
	share := g.hits()
	if prompts == nil {
		m.note("no histogram of prompts' lengths: prompts have 512 tokens")
		prompts = []weight{{512, 1}}
	}
	shared := share * mean(prompts)
	for i := range prompts {
		prompts[i].tokens = math.Max(1, prompts[i].tokens-math.Round(shared))
	}
	groups := 0.0
	if shared >= 1 {
		groups = 1
	}
	m.prompt(strconv.Quote(empirical(prompts)), groups, math.Round(shared))
	if answers == nil {
		m.note("no histogram of answers' lengths: answers have 128 tokens")
		answers = []weight{{128, 1}}
	}
	m.set("outputTokens", "%q", empirical(answers))
	g.fit("prompts", promptName, prompts, shared)
	g.fit("answers", answerName, answers, 0)
	if share > 0 {
		m.note("prefix caches found %.1f %% of all prompt tokens: all prompts share a beginning of %s tokens, where "+
			"the cluster's share several", 100*share, digits(math.Round(shared)))
	} else {
		m.note("no metrics of prefix caches, or nothing found in them: all prompts are different")
	}
	return nil
}

// fit notes how well the lengths match what was measured.
func (g *gauges) fit(what, name string, list []weight, beside float64) {
	if name == "" {
		return
	}
	sums, _ := g.first([]string{name}, "_sum")
	counts, _ := g.first([]string{name}, "_count")
	measured, n := grow(sums), grow(counts)
	if n == 0 {
		return
	}
	g.note("%s have the buckets of %s, and a mean of %s tokens where %s were measured", what, name,
		digits(mean(list)+beside), digits(measured/n))
}

// hits returns the share of prompts' tokens that prefix caches held.
func (g *gauges) hits() float64 {
	hits, _ := g.first(cacheHits, "")
	queries, _ := g.first(cacheQueries, "")
	if q := grow(queries); q > 0 {
		return math.Min(1, grow(hits)/q)
	}
	return 0
}

// weight is a length in tokens, and how many requests have this length.
type weight struct{ tokens, count float64 }

func mean(list []weight) float64 {
	sum, n := 0.0, 0.0
	for _, w := range list {
		sum, n = sum+w.tokens*w.count, n+w.count
	}
	return sum / n
}

// lengths returns the lengths of a histogram, and its name. A bucket has one length: all are as far between their
// bounds as the measured mean says.
func (g *gauges) lengths(names []string) ([]weight, string) {
	buckets, name := g.first(names, "_bucket")
	below := map[float64]float64{}
	for _, x := range buckets {
		if le, err := strconv.ParseFloat(x.Labels["le"], 64); err == nil && !math.IsNaN(le) {
			below[le] += grow([]Series{x})
		}
	}
	var bounds, counts []float64
	last := 0.0
	for _, le := range slices.Sorted(maps.Keys(below)) {
		bounds, counts = append(bounds, le), append(counts, math.Max(0, below[le]-last))
		last = math.Max(last, below[le])
	}
	if last < 1 {
		return nil, ""
	}
	at := func(part float64) (out []weight) {
		low := 0.0
		for i, high := range bounds {
			if math.IsInf(high, 1) {
				high = math.Max(2*low, 1)
			}
			if counts[i] > 0 {
				out = append(out, weight{math.Max(1, math.Round(low+part*(high-low))), counts[i]})
			}
			low = high
		}
		return out
	}
	sums, _ := g.first([]string{name}, "_sum")
	wanted := grow(sums) / last
	low, high := 0.02, 0.98
	if wanted > 0 {
		for range 40 {
			if middle := (low + high) / 2; mean(at(middle)) < wanted {
				low = middle
			} else {
				high = middle
			}
		}
	}
	return at((low + high) / 2), name
}

// empirical writes lengths as a distribution, with weights in thousandths.
func empirical(list []weight) string {
	n := 0.0
	for _, w := range list {
		n += w.count
	}
	if len(list) == 1 {
		return whole(list[0].tokens)
	}
	var parts []string
	for _, w := range list {
		parts = append(parts, fmt.Sprintf("%s*%s", whole(w.tokens), whole(1000*w.count/n)))
	}
	return "empirical(" + strings.Join(parts, ", ") + ")"
}

// increases returns the times of counters' values, and how much all of them grew between each two times.
func increases(list []Series) (times, grown []float64) {
	at := map[float64]float64{}
	for _, x := range list {
		for i, t := range x.Times {
			at[t] += 0
			if i > 0 {
				at[t] += increase(x.Values[i-1], x.Values[i])
			}
		}
	}
	times = slices.Sorted(maps.Keys(at))
	for _, t := range times[min(1, len(times)):] {
		grown = append(grown, at[t])
	}
	return times, grown
}

// grow returns how much counters grew.
func grow(list []Series) (sum float64) {
	for _, x := range list {
		for i := 1; i < len(x.Values); i++ {
			sum += increase(x.Values[i-1], x.Values[i])
		}
	}
	return sum
}

// increase returns how much a counter grew, which begins again at 0 with its process.
func increase(before, now float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

func digits(v float64) string {
	return cmp.Or(strconv.FormatFloat(v, 'g', 4, 64), "0")
}
