package dynamo

import (
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Policy selects the formula of a worker's cost.
type Policy string

// Dynamo's selection policies.
const (
	// KV is prefillLoadScale * max(0, prefill blocks - overlap credit) + decode
	// blocks + activeRequestWeight * requests.
	KV Policy = "kv"
	// LMetric is (prefill blocks - overlap credit, at least 0) * (decode blocks + 1).
	LMetric Policy = "lmetric"
)

// Values returns the policies.
func (Policy) Values() []string { return []string{string(KV), string(LMetric)} }

// Cost is a worker's cost and its parts, in KV blocks.
type Cost struct {
	// Overlap is the number of the prompt's first blocks that the worker has cached.
	Overlap float64
	// Prefill is the worker's blocks to compute, the prompt included; Credit is the overlap's deduction.
	Prefill, Credit float64
	// Decode is the blocks that running requests would hold, the prompt included.
	Decode float64
	// Requests is the number of requests running there.
	Requests int
	// Total is the cost: the worker with the lowest is chosen.
	Total float64
}

// total sets the credit and the total. It rounds products one by one, so that the digits are the same on every
// processor.
func (c *Config) total(x *Cost, excess, request float64) {
	credit := c.OverlapScoreCredit
	if c.CreditDecay > 0 && request > 0 {
		credit /= 1 + float64(c.CreditDecay*max(0, excess))/request
	}
	x.Credit = float64(credit * x.Overlap)
	left := max(0, x.Prefill-x.Credit)
	if c.Policy == LMetric {
		x.Total = float64(left * (x.Decode + 1))
		return
	}
	x.Total = float64(c.PrefillLoadScale*left) + x.Decode + float64(c.ActiveRequestWeight*float64(x.Requests))
}

// Choose returns the index of the worker with the lowest cost. With a temperature it draws by softmax of -(cost -
// least) / ((most - least) * temperature). It draws among equal costs. It returns -1 for no workers.
func (c *Config) Choose(costs []Cost, draw machine.Draw) int {
	if len(costs) == 0 {
		return -1
	}
	least, most := math.Inf(1), math.Inf(-1)
	for i := range costs {
		least, most = min(least, costs[i].Total), max(most, costs[i].Total)
	}
	weight := func(i int) float64 {
		switch {
		case c.Temperature == 0 && costs[i].Total > least:
			return 0
		case c.Temperature == 0 || most == least:
			return 1
		}
		return math.Exp(-(costs[i].Total - least) / float64((most-least)*c.Temperature))
	}
	sum := 0.0
	for i := range costs {
		sum += weight(i)
	}
	at, last := float64(draw.Float64()*sum), -1
	for i := range costs {
		w := weight(i)
		if w == 0 {
			continue
		}
		if last = i; at < w {
			break
		}
		at -= w
	}
	return last
}
