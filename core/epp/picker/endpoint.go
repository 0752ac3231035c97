package picker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Endpoint is one model server's address as the picker knows it: in a cluster
// one (pod, port) pair of the InferencePool, else one line of the endpoints
// file. It is immutable; a change of address or labels is a new Endpoint under
// the same name.
type Endpoint struct {
	Namespace string
	Name      string
	Address   string // IP literal
	Port      string
	Labels    map[string]string
	// Rank is which of the pool's target ports this is: with data parallelism
	// the engine's rank, whose other ports are as much higher.
	Rank int

	hostPort string
	id       string
	slot     int32
}

// NewEndpoint completes an endpoint with its derived names.
func NewEndpoint(namespace, name, address, port string, labels map[string]string) *Endpoint {
	return &Endpoint{Namespace: namespace, Name: name, Address: address, Port: port, Labels: labels,
		hostPort: JoinHostPort(address, port), id: namespace + "/" + name, slot: -1}
}

// EndpointsAt are endpoints of which only the addresses (host:port) are known,
// and named after them.
func EndpointsAt(addresses []string) ([]*Endpoint, error) {
	var out []*Endpoint
	for _, a := range addresses {
		colon := strings.LastIndexByte(a, ':')
		if colon < 1 || colon == len(a)-1 {
			return nil, fmt.Errorf("endpoint %q: expected HOST:PORT", a)
		}
		out = append(out, NewEndpoint("default", a, strings.Trim(a[:colon], "[]"), a[colon+1:], nil))
	}
	return out, nil
}

// ID is "namespace/name": the key of everything that is remembered about an
// endpoint.
func (e *Endpoint) ID() string { return e.id }

// Pod returns the name of the endpoint's pod, which has one endpoint per port: its
// own without the rank. It is the name itself where there are no pods.
func (e *Endpoint) Pod() string { return strings.TrimSuffix(e.Name, rankSuffix(e.Rank)) }

// RankName is what a pod's endpoint at one of the pool's ports is called.
func RankName(pod string, rank int) string { return pod + rankSuffix(rank) }

func rankSuffix(rank int) string { return "-rank-" + strconv.Itoa(rank) }

// HostPort is "address:port", what the destination header carries.
func (e *Endpoint) HostPort() string { return e.hostPort }

// Slot returns a small number that stays with the endpoint's name while the Pool
// remembers it. Plug-ins keep their state in slices indexed by slot.
func (e *Endpoint) Slot() int { return int(e.slot) }

// JoinHostPort is "address:port", with an IPv6 address in brackets.
func JoinHostPort(address, port string) string {
	for i := 0; i < len(address); i++ {
		if address[i] == ':' {
			return "[" + address + "]:" + port
		}
	}
	return address + ":" + port
}

// LoRA is what a model server says about its adapters (vllm:lora_requests_info).
type LoRA struct {
	Max     int // adapters that fit at once; 0 when unknown
	Running []string
	Waiting []string
}

// Metrics is the newest metric of each signal that a scrape has brought. The
// zero value is an endpoint that was never scraped: it looks idle.
type Metrics struct {
	Waiting        int64   // requests in the engine's queue
	Running        int64   // requests in the engine's batch
	KVUsage        float64 // share of KV-cache blocks in use, 0..1
	CacheBlockSize int32   // tokens in one KV block; 0 when unknown
	CacheBlocks    int32   // KV blocks on the accelerator; 0 when unknown
	LoRA           *LoRA   // nil when the server says nothing
	Custom         map[string]float64
}

// State is an endpoint with its metrics and their age.
type State struct {
	*Endpoint
	Metrics
	// UpdatedAt is when Metrics last came in; Scraped is false before the first.
	UpdatedAt machine.Time
	Scraped   bool
	// Announced carries what document 002's plug-ins read: ready, sessions, qps.
	Announced *Announced
}

// Announced is the endpoint state of document 002, chapter 10.
type Announced struct {
	Ready    bool
	Sessions []string // session ids (or prefixes) that live on the endpoint
	QPS      float64  // requests per second now
	MaxQPS   float64  // requests per second at most
}

// View is the pool's endpoints in a fixed order, with their newest metrics.
// Plug-ins address endpoints by their index in States.
type View struct {
	States []State
}

// Find returns the index of the endpoint with the given "namespace/name", or -1.
func (v *View) Find(id string) int {
	for i := range v.States {
		if v.States[i].id == id {
			return i
		}
	}
	return -1
}
