// Package plan holds what is to be played, with everything decided: which gateway, endpoint pickers, model servers,
// sidecars, load, incidents and autoscalers there are, each with the configuration that its machine of the core
// takes. A scenario compiles into a Plan (scenario.Scenario.Plan); virtual and live/stack execute it. Manifests compile
// into a Cluster (Compile), which live/up executes; Diff finds what an edit of them starts and stops. An executor adds
// what only it knows (recorders, addresses, clocks) and decides nothing.
//
// A Plan and a Cluster do not change once they are compiled. Begin to read at Plan or Cluster; Write prints a Plan.
package plan

import (
	"time"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Plan is one cluster with the load on it.
type Plan struct {
	Name string
	// Seed keys everything that is random.
	Seed    uint64
	Load    Load
	Gateway Gateway
	Pools   []*Pool
	// Hops are the times between parts in virtual time.
	Hops Hops
}

// Load describes what the client sends.
type Load struct {
	// Requests generates the requests, the same ones for every executor.
	Requests *workload.Config
	// Concurrency is the most conversations in flight.
	Concurrency int
	// Timeout is how long the client waits for a whole answer; 0 is for ever.
	Timeout time.Duration
	// HTTP2 is the protocol to the gateway; otherwise it is HTTP/1.1.
	HTTP2 bool
	// Chunked uploads have no content-length.
	Chunked bool
}

// Hops are the times that virtual time draws for each message between two parts.
type Hops struct{ Network, Envoy, ExtProc, Sidecar, Scrape dist.Dist }

// Gateway is the way from the client to the pools.
type Gateway struct {
	// Front is the Gateway of manifests. Nil: the model that a request asks for names its pool.
	Front *Front
	// Routes are the pools by the models and adapters that lead to them.
	Routes bbr.Table
	// BodyRouter says that a body-based router finds the pool, since there are several and no manifests.
	BodyRouter bool
	// Router describes what the streams of body-based routers share.
	Router stream.Config
	// BodyBytes, BodyTime and Hold are the widest limits of all pools: of a request's body, of the time that it
	// takes, and of the time that a request is held.
	BodyBytes      int
	BodyTime, Hold time.Duration
	// Port and AdminPort are Envoy's for clients and for its own pages; 0 is any.
	Port, AdminPort int
}

// Front is the Gateway of manifests that takes the load.
type Front struct {
	Program *gateway.Program
	// Served and Port are the first Gateway by namespace and name with an HTTP listener, and its lowest such port.
	Served *gateway.Served
	Port   *gateway.Port
	// Pools are the plan's pools, by the keys of their backends.
	Pools map[string]int
}

// Pool is an InferencePool: model servers that serve one model, and the endpoint picker before them.
type Pool struct {
	Name  string
	Index int
	// Models are the model's names; servers answer with the first.
	Models []string
	// Adapters are the LoRA adapters that servers know from the start. Engines number them from 1.
	Adapters []string
	// Endpoints are model servers that another party runs, as host:port, in place of Servers.
	Endpoints []string
	// HTTP2 is the protocol between Envoy and the servers; otherwise it is HTTP/1.1.
	HTTP2 bool
	// Upstream describes what Envoy does between picker and servers beside obeying the picker; nil is nothing.
	// The executor
	// adds the endpoints.
	Upstream *upstream.Config
	Picker   Picker
	// Servers are all that there may be at once: those that decode, then those that only prefill.
	Servers []Server
	// Decoders is how many of Servers decode.
	Decoders int
	// Deployments are the servers that are alike, by the indexes of their servers.
	Deployments []Deployment
	// Lives says that servers come or go in the run.
	Lives bool
	// Sidecars stand before the servers that decode; nil: there are none.
	Sidecars *Sidecars
	// Link is how KV caches travel between servers, NIC what joins a server to the network.
	Link link.Profile
	NIC  link.Wire
	// Transfers says that servers have a KV connector: there are sidecars or KV events.
	Transfers bool
	// SideChannel is the port where servers are asked for KV caches.
	SideChannel int
	// Events describe what servers publish of their KV caches; nil is nothing.
	Events *Events
	// Frontend is NVIDIA Dynamo's; nil: there is none.
	Frontend  *Frontend
	Predictor *Predictor // nil: there is none
	Tokens    Tokens
	// StoreResponses says that servers keep the responses of /v1/responses.
	StoreResponses bool
	// BlockTokens is the size of the engines' KV blocks.
	BlockTokens int
	Faults      lifecycle.Faults
	Incidents   []Incident
}

// Picker is the pool's endpoint picker.
type Picker struct {
	// Config is the text of its EndpointPickerConfig, and File where that stands.
	File   string
	Config []byte
	// Replicas are its processes; none is a pool whose servers Envoy asks by turns.
	Replicas []Replica
	// Asking is how Envoy asks it.
	Asking gateway.Asking
	// Objects are its InferenceObjectives and rewrites; nil: there are none.
	Objects *objects.Selection
	// BodyIdle and BodyTotal limit the times of a request's body, at model servers too.
	BodyIdle, BodyTotal time.Duration
	// MaxBodyBytes is the largest body that it takes.
	MaxBodyBytes int
	// Dies says that an incident kills a replica, Readiness that one makes a server fail its readiness probe.
	Dies, Readiness bool
}

// Replica is one process of a pool's endpoint picker.
type Replica struct {
	// Name is for people, and RecordName for records: "" where the replica is the only one.
	Name, RecordName string
	// Number counts the replicas of all pools.
	Number int
	Seed   uint64
	// Service is the time that it takes for each request.
	Service epp.ServiceConfig
	// Stream describes what its streams share, without a recorder.
	Stream stream.Config
	Ports  PickerPorts
}

// PickerPorts are the ports of 127.0.0.1 where a replica listens; 0 is any.
type PickerPorts struct{ ExtProc, Health, Metrics int }

// Tokens is how a pool's servers and pickers read and write text.
type Tokens struct {
	Tokenizer tokens.Tokenizer
	// JSON is the tokenizer's file, nil without one.
	JSON []byte
	// Template is the model's own chat template, nil without one.
	Template *chattemplate.Template
}

// Role describes what a model server does.
type Role string

// The roles. Both: there are no servers that only prefill.
const (
	Both     Role = "both"
	Decodes  Role = "decode"
	Prefills Role = "prefill"
)

// Server is one model server.
type Server struct {
	Index int
	Name  string
	Role  Role
	// Deployment is the index of its Deployment.
	Deployment int
	// Labels describe what filters of the picker look at.
	Labels map[string]string
	Engine engine.Config
	// EngineID describes what other servers know the engine by.
	EngineID string
	// Draws are the random properties of requests at it.
	Draws lifecycle.Draws
	// KVRole is its part in KV transfers; "" without a connector.
	KVRole string
	// TensorParallel is how many ranks the engine has, at least 1.
	TensorParallel int
	// MemoryBytes are taken of an accelerator's memory beside the KV cache; 0 where no accelerator is simulated.
	MemoryBytes int64
	// OutOfMemory is why it is killed again and again; nil: it fits.
	OutOfMemory error
	// Steps is how much of its engine's steps the record has.
	Steps lifecycle.StepDetail
	// Port is the model server's own in its pod, AlsoPort a further one; 0 is none.
	Port, AlsoPort int
	// ListenPort and SidecarPort are ports of 127.0.0.1 that it and its sidecar listen on; 0 is any.
	ListenPort, SidecarPort int
}

// Prefills reports whether the server only prefills.
func (s *Server) Prefills() bool { return s.Role == Prefills }

// Picked reports whether the pool has endpoint pickers. One without is a plain Service.
func (p *Pool) Picked() bool { return len(p.Picker.Replicas) > 0 }

// Model describes what the pool's servers call the model in answers.
func (p *Pool) Model() string { return p.Models[0] }

// AdapterIDs are the engines' numbers of the adapters.
func (p *Pool) AdapterIDs() map[string]engine.AdapterID {
	out := map[string]engine.AdapterID{}
	for i, name := range p.Adapters {
		out[name] = engine.AdapterID(i + 1)
	}
	return out
}

// Sidecars are the routing sidecars of a pool, or Dynamo's frontends in direct mode.
type Sidecars struct {
	// Config is how each serves, but for its seed: that of server i's is Seed + i.
	Config disagg.Config
	Seed   uint64
	// Sessions is how many each remembers; above 0 it chooses the prefill server itself (document 002).
	Sessions int
	// Direct says that each is a Dynamo frontend, and Routes that it asks the pool's Frontend for a worker.
	Direct, Routes bool
}

// Events describe what model servers publish of their KV caches.
type Events struct {
	// Format is msgpack, msgpack-map or json.
	Format string
	// Interval is how long an event waits for others, Delay how long a message is under way in virtual time.
	Interval, Delay time.Duration
	// Connect is where servers send events besides their own socket.
	Connect []string
	// Manager is document 003's KV-Cache Manager; nil: there is none.
	Manager *Manager
}

// Manager has the ports of 127.0.0.1 where document 003's KV-Cache Manager listens; 0 is any. Number counts the
// managers of all pools.
type Manager struct{ Number, Port, EventsPort int }

// The formats of Events that drivers distinguish.
const (
	MapEvents  = "msgpack-map"
	JSONEvents = "json"
)
