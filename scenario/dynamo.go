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
	// Where the frontend with its router runs: none (there is none), sidecar (in the picker's pod), external
	// (in another pod), graph (before the model servers, whose sidecar is dynamo: the whole graph is a black box, and
	// the picker chooses one of its frontends). The picker reaches a sidecar or an external frontend as
	// http://dynamo-frontend:8000.
	Frontend DynamoFrontend `json:"frontend" oneof:"none,sidecar,external,graph" default:"none"`
	// The round-trip time to an external frontend. Left out: 1ms. A sidecar's takes no time in virtual time.
	RoundTrip time.Duration `json:"roundTrip" min:"0s" max:"10s"`
	// How often workers push their role and load, besides the pushes when their number of requests changes. The router
	// drops a worker after three times this long without a push.
	PushInterval time.Duration `json:"pushInterval" min:"10ms" max:"1h" default:"1s"`
	// Tokens of a block, as the router counts (Dynamo's --block-size).
	BlockSize int `json:"blockSize" min:"1" max:"4096"`
	// How much a cached block reduces a worker's cost, in blocks; 0 routes by load alone (--kv-overlap-score-credit).
	OverlapScoreCredit float64 `json:"overlapScoreCredit" min:"0" max:"16"`
	// The weight of blocks to prefill relative to blocks in use: more favours workers with cached blocks over idle
	// ones.
	PrefillLoadScale float64 `json:"prefillLoadScale" min:"0" max:"1000"`
	// 0 chooses the lowest cost; higher values choose more randomly (--router-temperature).
	RouterTemperature float64 `json:"routerTemperature" min:"0" max:"1000"`
	// How long the router expects blocks to stay cached at the worker that it sent them to.
	RouterTTL time.Duration `json:"routerTTL" min:"1ms" max:"240h"`
	// With prefill servers: a decode worker computes a prompt itself if at most so many of its tokens are not cached
	// there.
	PrefillThreshold int `json:"prefillThreshold" min:"0" max:"16777216"`
}

// DynamoFrontend is where a Dynamo frontend runs.
type DynamoFrontend string

// The places of a frontend.
const (
	NoFrontend       DynamoFrontend = "none"
	SidecarFrontend  DynamoFrontend = "sidecar"
	ExternalFrontend DynamoFrontend = "external"
	GraphFrontend    DynamoFrontend = "graph"
)

// defaultRoundTrip is the round-trip time between two pods of a cluster.
const defaultRoundTrip = time.Millisecond

func (d *Dynamo) defaults() {
	c := dynamo.DefaultConfig()
	d.BlockSize, d.OverlapScoreCredit, d.PrefillLoadScale, d.RouterTTL = c.BlockSize, c.OverlapScoreCredit,
		c.PrefillLoadScale, c.TTL.Duration()
}

// Given reports whether the pool has a frontend.
func (d *Dynamo) Given() bool { return d.Frontend != NoFrontend && d.Frontend != "" }

// plan compiles the frontend; nil without one.
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

// checkDynamo checks where a frontend stands, and sets the default RoundTrip.
func (s *checker) checkDynamo(p *Pool, path string) {
	d, field, trip := &p.Dynamo, path+".dynamo", path+".dynamo.roundTrip"
	switch given := s.written(trip); {
	case !d.Given() && given:
		s.bad(trip, "given without a frontend", "frontend: external beside it")
	case d.Frontend == SidecarFrontend && given:
		s.bad(trip, "given with frontend: sidecar",
			"frontend: external, or nothing: a sidecar is reached on the loopback")
	case d.Frontend == GraphFrontend && p.Sidecar != DynamoSidecar:
		s.bad(field+".frontend", fmt.Sprintf("graph with sidecar %s", p.Sidecar),
			"sidecar: dynamo beside it, whose frontends route by themselves then")
	case d.Frontend == GraphFrontend && given:
		s.bad(trip, "given with frontend: graph", "frontend: external, or nothing: the picker does not call it")
	case d.Given() && len(p.Endpoints) > 0:
		s.bad(field, "given beside endpoints",
			"simulated model servers (replicas): someone else's do not announce themselves")
	case (d.Frontend == SidecarFrontend || d.Frontend == ExternalFrontend) && p.EPP.Replicas == 0:
		s.bad(field+".frontend", fmt.Sprintf("%s with epp.replicas 0", d.Frontend),
			"frontend: graph, which routes by itself, or a picker that calls it (epp.replicas: 1)")
	case d.Frontend == SidecarFrontend && p.EPP.Replicas > 1:
		s.bad(field+".frontend", fmt.Sprintf("sidecar with %d replicas of the picker", p.EPP.Replicas),
			"frontend: external, which all of them call, or epp.replicas: 1")
	case d.Frontend == ExternalFrontend && !given:
		d.RoundTrip = defaultRoundTrip
	}
}
