package picker

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Endpoint is one model server's address: in a cluster one (pod, port) pair of the InferencePool, else one line of the
// endpoints file. It is immutable. A change of address or labels makes a new Endpoint under the same name.
type Endpoint struct {
	Identity

	hostPort string
	id       string
	slot     int32
}

// Identity is an endpoint's name, address and labels, as recordings have them.
type Identity struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Address   string            `json:"address"` // IP literal
	Port      string            `json:"port"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Rank is the index of the endpoint's port among the pool's target ports: with data parallelism the engine's rank.
	Rank int `json:"rank,omitempty"`
}

// NewEndpoint returns an endpoint with its derived names.
func NewEndpoint(namespace, name, address, port string, labels map[string]string) *Endpoint {
	return (&Identity{Namespace: namespace, Name: name, Address: address, Port: port, Labels: labels}).endpoint()
}

// endpoint returns the endpoint, not yet in a pool.
func (x *Identity) endpoint() *Endpoint {
	return &Endpoint{Identity: *x, hostPort: JoinHostPort(x.Address, x.Port), id: x.Namespace + "/" + x.Name, slot: -1}
}

// UnmarshalJSON reads an Identity.
func (e *Endpoint) UnmarshalJSON(text []byte) error {
	var x Identity
	err := json.Unmarshal(text, &x)
	*e = *x.endpoint()
	return err
}

// ID returns "namespace/name", the key of all state about an endpoint.
func (e *Endpoint) ID() string { return e.id }

// Pod returns the name of the endpoint's pod, which has one endpoint per port: the endpoint's name without the rank
// suffix.
func (e *Endpoint) Pod() string { return strings.TrimSuffix(e.Name, rankSuffix(e.Rank)) }

// RankName returns the name of a pod's endpoint at one of the pool's ports.
func RankName(pod string, rank int) string { return pod + rankSuffix(rank) }

func rankSuffix(rank int) string { return "-rank-" + strconv.Itoa(rank) }

// HostPort returns "address:port", the destination header's form.
func (e *Endpoint) HostPort() string { return e.hostPort }

// Slot returns a small number that stays with the endpoint's name as long as the Pool keeps it. Plug-ins keep their
// state in slices indexed by slot.
func (e *Endpoint) Slot() int { return int(e.slot) }

// AtSlot returns the element of a plug-in's list at a slot, after it has grown the list to it.
func AtSlot[T any](list *[]T, slot int) *T {
	if n := slot + 1 - len(*list); n > 0 {
		*list = append(*list, make([]T, n)...)
	}
	return &(*list)[slot]
}

// JoinHostPort returns "address:port", with an IPv6 address in brackets.
func JoinHostPort(address, port string) string {
	for i := 0; i < len(address); i++ {
		if address[i] == ':' {
			return "[" + address + "]:" + port
		}
	}
	return address + ":" + port
}

// LoRA is a model server's report about its adapters (vllm:lora_requests_info).
type LoRA struct {
	Max     int // adapters that fit at once; 0 when unknown
	Running []string
	Waiting []string
}

// Metrics has the newest scraped value of each signal. The zero value belongs to an endpoint that was never scraped: it
// looks idle.
type Metrics struct {
	Waiting        int64   // requests in the engine's queue
	Running        int64   // requests in the engine's batch
	KVUsage        float64 // share of KV-cache blocks in use, 0..1
	CacheBlockSize int32   // tokens in one KV block; 0 when unknown
	CacheBlocks    int32   // KV blocks on the accelerator; 0 when unknown
	LoRA           *LoRA   // nil if the server reports none
	Custom         map[string]float64
}

// State is an endpoint with its metrics and their age.
type State struct {
	*Endpoint
	Metrics
	// UpdatedAt is the time of the newest Metrics; Scraped is false before the first.
	UpdatedAt machine.Time
	Scraped   bool
	// Announced is the state that document 002's plug-ins read.
	Announced *Announced
}

// Announced is the endpoint state of document 002, chapter 10.
type Announced struct {
	Ready    bool
	Sessions []string // ids (or prefixes) of sessions on the endpoint
	QPS      float64  // requests per second at present
	MaxQPS   float64  // requests per second at most
}

// View is the pool's endpoints in a fixed order, with their newest metrics. Plug-ins address endpoints by their index
// in States.
type View struct {
	States []State
}

// Find returns the index of the endpoint with this "namespace/name", or -1.
func (v *View) Find(id string) int {
	for i := range v.States {
		if v.States[i].id == id {
			return i
		}
	}
	return -1
}
