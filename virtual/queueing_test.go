package virtual

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// service is a distribution of services, as the output tokens of an engine that takes 250 µs for each.
type service struct {
	tokens       string
	mean, square float64 // of its time in seconds, as it is drawn: whole tokens, within limits
}

const perToken = 250e-6

func drawn(t *testing.T, tokens string) service {
	d, err := dist.ParseCount(tokens)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 20
	s := service{tokens: tokens}
	for i := range n {
		x := float64(d.Quantile((float64(i)+0.5)/n)) * perToken
		s.mean, s.square = s.mean+x/n, s.square+x*x/n
	}
	return s
}

// poissonWait is the mean wait at one place for Poisson arrivals (Pollaczek and Khinchine).
func (s *service) poissonWait(load float64) float64 {
	return load / s.mean * s.square / (2 * (1 - load))
}

// erlangWait is the mean wait for one of c exponential services (Erlang's C).
func (s *service) erlangWait(c int, load float64) float64 {
	term, sum := 1.0, 0.0
	for k := range c {
		sum += term
		term *= load * float64(c) / float64(k+1)
	}
	last := term / (1 - load)
	return last / (sum + last) * s.mean / (float64(c) * (1 - load))
}

// gammaWait is the mean wait for one exponential service where times between arrivals are of the gamma family with that
// shape: GI/M/1, whose root is found by iteration.
func (s *service) gammaWait(shape, load float64) float64 {
	root := load
	for range 10_000 {
		root = math.Pow(1+(1-root)/(load*shape), -shape) // the transform of the times between arrivals
	}
	return s.mean * root / (1 - root)
}

// shortestWait is the mean wait where each arrival joins the shorter of two exponential queues: the stationary
// distribution of the Markov chain of both lengths, as far as most.
func (s *service) shortestWait(load float64) float64 {
	const most = 40
	arrive := 2 * load // a service takes 1
	var p, next [most + 2][most + 2]float64
	p[0][0] = 1
	for range 4_000 { // uniformized at a rate that leaves something to stay
		rate := arrive + 2.5
		next = [most + 2][most + 2]float64{}
		for i := range most + 1 {
			for j := range i + 1 { // i is the longer
				w, stay := p[i][j]/rate, rate
				to := func(a, b int, rate float64) { next[max(a, b)][min(a, b)] += w * rate; stay -= rate }
				if i < most || j < i {
					to(i, j+1, arrive)
				}
				if i > 0 {
					to(i-1, j, 1)
				}
				if j > 0 {
					to(i, j-1, 1)
				}
				next[i][j] += w * stay
			}
		}
		p = next
	}
	there := 0.0
	for i := range p {
		for j := range p[i] {
			there += p[i][j] * float64(i+j)
		}
	}
	return (there/arrive - 1) * s.mean
}

// reference is a case for which theory has the answer.
type reference struct {
	name, server, pool, workload, measure string
	want                                  float64 // seconds
	load                                  float64 // of all places; 1 where clients make it
}

// references are the cases. Each is a scenario without hops, in which the time to the first token is measured,
// or in a closed loop the time of the whole answer.
func references(t *testing.T) (list []reference) {
	exponential, uniform := drawn(t, "exponential(400, min=1, max=8000)"), drawn(t, "100..700")
	constant := service{mean: 0.1, square: 0.01}
	tokens := fmt.Sprintf("interTokenLatency: %vs, prefill: %[1]vs, outputTokens: ", perToken)
	random := "batching: none, " + tokens + "'" + exponential.tokens + "'"
	picking := func(replicas int, plugins ...string) string {
		refs := strings.Join(plugins, "}, {pluginRef: ")
		return fmt.Sprintf(`replicas: %d, epp: {config: {apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig,
			plugins: [{type: %s}], schedulingProfiles: [{name: default, plugins: [{pluginRef: %s}]}]}}, `,
			replicas, strings.Join(plugins, "}, {type: "), refs)
	}
	add := func(name string, s *service, server, pool string, places int, load float64, arrivals string, wait float64) {
		first := perToken
		if s == &constant {
			first = s.mean
		}
		workload := fmt.Sprintf("rate: %v, concurrency: 1000000, arrivals: %s", load*float64(places)/s.mean, arrivals)
		name = fmt.Sprintf("%s at %.0f%%", name, 100*load)
		list = append(list, reference{name, server, pool, workload, "ttft mean", wait + first, load})
	}
	for _, load := range []float64{0.5, 0.8, 0.95} {
		add("M/D/1", &constant, "batching: none, interTokenLatency: 1ms, prefill: 100ms, outputTokens: 1", "", 1, load,
			"poisson", constant.poissonWait(load))
		add("M/M/1", &exponential, random, "", 1, load, "poisson", exponential.poissonWait(load))
		add("M/G/1", &uniform, "batching: none, "+tokens+uniform.tokens, "", 1, load,
			"poisson", uniform.poissonWait(load))
		for _, shape := range []float64{0.5, 4} {
			add(fmt.Sprintf("GI/M/1, gamma %v,", shape), &exponential, random, "", 1, load,
				fmt.Sprintf("gamma, burstiness: %v", shape), exponential.gammaWait(shape, load))
		}
		add("M/M/4", &exponential, strings.Replace(random, "none", "continuous, maxNumSeqs: 4", 1), "", 4, load,
			"poisson", exponential.erlangWait(4, load))
	}
	add("JSQ(2)", &exponential, random, picking(2, "active-request-scorer", "max-score-picker"), 2, 0.8,
		"poisson", exponential.shortestWait(0.8))
	// A closed network of k equal places, each equally likely for every answer: by mean value analysis a client finds
	// (n-1)/k others at its place.
	for _, c := range []struct{ clients, places int }{{6, 1}, {8, 3}} {
		list = append(list, reference{fmt.Sprintf("MVA, %d clients at %d places", c.clients, c.places), random,
			picking(c.places, "random-picker"), fmt.Sprintf("concurrency: %d", c.clients), "e2e mean",
			exponential.mean * (1 + float64(c.clients-1)/float64(c.places)), 1})
	}
	return list
}

// sampled plays a reference once: the mean over all requests but those of the warm-up, and the mean that is printed.
func (q *reference) sampled(t *testing.T, seed, requests, warm int) (raw, printed float64) {
	s, err := scenario.Parse("queue.yaml", fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario, seed: %d,
		pools: [{name: default, flow: plain, %s modelServer: {%s}}], workload: {requests: %d, timeout: 24h, %s}}`,
		seed, q.pool, q.server, requests, q.workload))
	if err != nil {
		t.Fatal(err)
	}
	s.Hops = scenario.Hops{}
	tally, sum, n := report.NewTally(), 0.0, 0.0
	tally.OnEnded(func(e *report.Ended) {
		took := e.TTFT
		if q.measure == "e2e mean" {
			took = e.E2E
		}
		if int(e.Number) > warm && int(e.Number) <= requests-20 { // the last of a closed loop meet fewer others
			sum, n = sum+took.Seconds(), n+1
		}
	})
	if err := Run(s, tally, nil); err != nil {
		t.Fatal(err)
	}
	m, _ := report.MeasureNamed(q.measure)
	e, _ := report.Runs{tally.Sample()}.Under(record.SLO{}).Estimate(m)
	return sum / n, e.Value
}

// Means are those of queueing theory: all requests' after a long warm-up, and those that a summary prints, each
// within three standard errors over seeds. WINDTUNNEL_STATISTICS takes more loads and longer runs.
func TestMeansAreThoseOfQueueingTheory(t *testing.T) {
	for number, q := range references(t) {
		if (q.load != 0.8 && q.load < 1 || !nightly.Each(number, 2)) && !statistics {
			continue
		}
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			seeds, requests, warm := 20, 2_000, 400
			switch {
			case q.load == 0.95: // which forgets slowly
				seeds, requests, warm = 40, 60_000, 20_000
			case statistics:
				seeds, requests, warm = 40, 12_000, 2_000
			}
			var raw, printed []float64
			for seed := range seeds {
				r, p := q.sampled(t, 1+100*number+seed, requests, warm)
				raw, printed = append(raw, r), append(printed, p)
			}
			for _, of := range []struct {
				name string
				list []float64
			}{{"raw", raw}, {"as printed", printed}} {
				mean, sd := meanAndDeviation(of.list)
				z := (mean - q.want) / (sd / math.Sqrt(float64(seeds)))
				t.Logf("%s: %.2f ms, expected %.2f ms, z %.2f", of.name, 1e3*mean, 1e3*q.want, z)
				if math.Abs(z) > 3 {
					t.Errorf("%s: %.2f ms, %.1f standard errors from %.2f ms", of.name, 1e3*mean, z, 1e3*q.want)
				}
			}
		})
	}
}

func meanAndDeviation(list []float64) (mean, sd float64) {
	for _, x := range list {
		mean += x / float64(len(list))
	}
	for _, x := range list {
		sd += (x - mean) * (x - mean) / float64(len(list)-1)
	}
	return mean, math.Sqrt(sd)
}

// Little's law: the average number of requests in the engines is their rate of arrival times the average time in the
// engine, under batches, queues and too little memory.
func TestLittlesLaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, server, load string }{
		{"room for all", "batching: continuous, source: measured, outputTokens: 20..200", "rate: 20"},
		{"queues", "batching: continuous, source: measured, maxNumSeqs: 4, outputTokens: 20..200", "rate: 12"},
		{"too little memory", "batching: continuous, source: measured, numGPUBlocks: 300, maxModelLen: 4096, " +
			"outputTokens: 200..900", "concurrency: 40"},
		{"static", "batching: static, source: measured, maxNumSeqs: 8, outputTokens: 20..200", "concurrency: 40"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Parse("little.yaml", fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario,
				pools: [{name: default, flow: plain, replicas: 2, modelServer: {%s}}],
				workload: {requests: 400, timeout: 24h, prompt: {characters: 100..6000}, %s}}`, c.server, c.load))
			if err != nil {
				t.Fatal(err)
			}
			var ended machine.Time
			stayed, came, n := machine.Time(0), map[string]machine.Time{}, 0
			var loads []report.ServerLoad
			if _, err := Play(s, record.Func(func(e record.Event) {
				if e.Step == record.Finished {
					ended = e.Time
				}
				switch {
				case e.Hop != record.Server:
				case e.Step == record.RequestReceived:
					came[e.Request] = e.Time
				case e.Step == record.LastTokenSent:
					stayed += e.Time - came[e.Request]
					n++
				}
			}), Options{Served: func(list []report.ServerLoad) { loads = list }}); err != nil {
				t.Fatal(err)
			}
			there, preempted := 0.0, uint64(0)
			for i := range loads {
				l := &loads[i].Load
				there += (l.Running.Mean(l.For) + l.Waiting.Mean(l.For)) * l.For.Seconds()
				preempted += l.Preemptions
			}
			if n != 400 || math.Abs(there-stayed.Seconds()) > 1e-3*there {
				t.Errorf("%d requests stayed for %v s together; over time there were %v request-seconds", n,
					stayed.Seconds(), there)
			}
			for i := range loads {
				if l := &loads[i].Load; l.For > loads[0].Load.For || l.For.Seconds() > 1.001*ended.Seconds() ||
					l.Prompts <= 0 || l.Prompts >= l.Busy || l.Busy > l.For {
					t.Errorf("%s is told of for %s, busy for %s and %s of that with prompts; the last request ended "+
						"at %s", loads[i].Name, l.For, l.Busy, l.Prompts, ended)
				}
			}
			if (c.name == "too little memory") != (preempted > 0) {
				t.Errorf("%d preemptions", preempted)
			}
		})
	}
}
