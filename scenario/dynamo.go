package scenario

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// Dynamo is NVIDIA Dynamo's frontend with its router, which the picker's
// dynamo-frontend-scorer asks for a worker (document 001).
type Dynamo struct {
	// Where the frontend with its router stands: none (there is none), sidecar (in the picker's pod), external
	// (somewhere else), graph (before the model servers, whose sidecar is dynamo: the whole graph is a black box, and
	// the picker says which of its frontends a request goes to). The picker reaches the first two as
	// http://dynamo-frontend:8000.
	Frontend DynamoFrontend `json:"frontend"`
	// How long a question and its answer are on their way to an external frontend together; left out 1ms. A sidecar's
	// take no time but what the machine does.
	RoundTrip time.Duration `json:"roundTrip" min:"0s" max:"10s"`
	// How often workers push their role and what they have in hand, besides the pushes when they have more or fewer
	// requests in hand. One that has said nothing for three times as long has left.
	PushInterval time.Duration `json:"pushInterval" min:"10ms" max:"1h"`
	// Tokens of a block, as the router counts (Dynamo's --block-size).
	BlockSize int `json:"blockSize" min:"1" max:"4096"`
	// What a cached block takes off a worker's cost, in blocks; 0 routes by load alone (--kv-overlap-score-credit).
	OverlapScoreCredit float64 `json:"overlapScoreCredit" min:"0" max:"16"`
	// Blocks to prefill against blocks in use: more favours what is cached over what is idle.
	PrefillLoadScale float64 `json:"prefillLoadScale" min:"0" max:"1000"`
	// 0 takes the lowest cost; more leaves more to chance (--router-temperature).
	RouterTemperature float64 `json:"routerTemperature" min:"0" max:"1000"`
	// How long blocks are taken for cached where they were sent.
	RouterTTL time.Duration `json:"routerTTL" min:"1ms" max:"240h"`
	// Where there are prefill servers: a prompt of which a worker that decodes has all but so many tokens is computed
	// there, and not by a prefill worker.
	PrefillThreshold int `json:"prefillThreshold" min:"0" max:"16777216"`
}

// DynamoFrontend is where a Dynamo frontend stands.
type DynamoFrontend string

// Where it may stand.
const (
	NoFrontend       DynamoFrontend = "none"
	SidecarFrontend  DynamoFrontend = "sidecar"
	ExternalFrontend DynamoFrontend = "external"
	GraphFrontend    DynamoFrontend = "graph"
)

func (DynamoFrontend) Values() []string { return []string{"none", "sidecar", "external", "graph"} }

// defaultRoundTrip is that between two pods of a cluster.
const defaultRoundTrip = time.Millisecond

func (d *Dynamo) defaults() {
	c := dynamo.DefaultConfig()
	d.Frontend, d.PushInterval = NoFrontend, time.Second
	d.BlockSize, d.OverlapScoreCredit, d.PrefillLoadScale, d.RouterTTL = c.BlockSize, c.OverlapScoreCredit,
		c.PrefillLoadScale, c.TTL.Duration()
}

// Given says whether there is a frontend.
func (d *Dynamo) Given() bool { return d.Frontend != NoFrontend && d.Frontend != "" }

// plan is the frontend as drivers take it; nil where there is none.
func (d *Dynamo) plan(seed uint64) *plan.Frontend {
	if !d.Given() {
		return nil
	}
	c := dynamo.DefaultConfig()
	c.BlockSize, c.OverlapScoreCredit, c.PrefillLoadScale = d.BlockSize, d.OverlapScoreCredit, d.PrefillLoadScale
	c.Temperature, c.TTL, c.PrefillThreshold = d.RouterTemperature, machine.FromDuration(d.RouterTTL),
		d.PrefillThreshold
	return &plan.Frontend{Router: c, Seed: seed, PushInterval: d.PushInterval, RoundTrip: d.RoundTrip}
}

// checkDynamo tells what a frontend cannot be part of.
func (s *Scenario) checkDynamo(p *Pool, path string) Problems {
	d, field := &p.Dynamo, path+".dynamo"
	switch {
	case !d.Given() && s.written(field+".roundTrip"):
		return Problems{s.problem(field+".roundTrip", "given without a frontend", "frontend: external beside it")}
	case d.Frontend == SidecarFrontend && s.written(field+".roundTrip"):
		return Problems{s.problem(field+".roundTrip", "given with frontend: sidecar",
			"frontend: external, or nothing: a sidecar is reached on the loopback")}
	case d.Frontend == GraphFrontend && p.Sidecar != DynamoSidecar:
		return Problems{s.problem(field+".frontend", fmt.Sprintf("graph with sidecar %s", p.Sidecar),
			"sidecar: dynamo beside it, whose frontends route by themselves then")}
	case d.Frontend == GraphFrontend && s.written(field+".roundTrip"):
		return Problems{s.problem(field+".roundTrip", "given with frontend: graph",
			"frontend: external, or nothing: the picker asks nobody")}
	case d.Given() && len(p.Endpoints) > 0:
		return Problems{s.problem(field, "given beside endpoints",
			"simulated model servers (replicas): someone else's do not announce themselves")}
	case (d.Frontend == SidecarFrontend || d.Frontend == ExternalFrontend) && p.EPP.Replicas == 0:
		return Problems{s.problem(field+".frontend", fmt.Sprintf("%s with epp.replicas 0", d.Frontend),
			"frontend: graph, which routes by itself, or a picker that asks it (epp.replicas: 1)")}
	case d.Frontend == SidecarFrontend && p.EPP.Replicas > 1:
		return Problems{s.problem(field+".frontend",
			fmt.Sprintf("sidecar with %d replicas of the picker", p.EPP.Replicas),
			"frontend: external, which all of them ask, or epp.replicas: 1")}
	}
	if d.Frontend == ExternalFrontend && !s.written(field+".roundTrip") {
		d.RoundTrip = defaultRoundTrip
	}
	return nil
}
