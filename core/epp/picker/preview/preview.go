// Package preview answers "where would this request go" for a saved state, without sending or changing anything.
// Endpoints with their metrics, a configuration and a request enter; the explained decision leaves.
package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// State is a saved state of a pool.
type State struct {
	Endpoints  []Endpoint     `json:"endpoints"`
	Objectives map[string]int `json:"objectives,omitempty"`
	// Live states that the state is a running picker's and incomplete; see Unknown.
	Live bool `json:"live,omitempty"`
}

// Endpoint is one endpoint with its metrics and its earlier requests.
type Endpoint struct {
	Name      string             `json:"name"`
	Namespace string             `json:"namespace,omitempty"`
	Address   string             `json:"address,omitempty"`
	Port      string             `json:"port,omitempty"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Waiting   int64              `json:"waiting,omitempty"`
	Running   int64              `json:"running,omitempty"`
	KV        float64            `json:"kv,omitempty"`
	Custom    map[string]float64 `json:"custom,omitempty"`
	LoRA      *LoRA              `json:"lora,omitempty"`
	BlockSize int32              `json:"blockSize,omitempty"`
	Blocks    int32              `json:"blocks,omitempty"`
	// Document 002's endpoint state.
	Ready    *bool    `json:"ready,omitempty"`
	Sessions []string `json:"sessions,omitempty"`
	QPS      float64  `json:"qps,omitempty"`
	MaxQPS   float64  `json:"maxQps,omitempty"`
	// Served are earlier requests of the endpoint (bodies with their paths), which fill prefix histories and session
	// bindings.
	Served []Request `json:"served,omitempty"`
}

// LoRA has the endpoint's adapters.
type LoRA struct {
	Max     int      `json:"max,omitempty"`
	Running []string `json:"running,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
}

// Request is one request of a state.
type Request struct {
	Path    string            `json:"path,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// Tokens replaces a body that was not kept by a prompt of so many tokens that no other request has.
	Tokens int `json:"tokens,omitempty"`
	// Held is true for requests still in flight.
	Held bool `json:"held,omitempty"`
}

// ReadState parses a state file; file is its name in messages.
func ReadState(file string, data []byte) (*State, error) {
	doc, err := strictyaml.Parse(data, strictyaml.Options{File: file, Kubernetes: true})
	if err != nil {
		return nil, err
	}
	var s State
	problems := doc.Root().Decode(&s)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.Name == "" {
			problems = append(problems,
				doc.Root().At(fmt.Sprintf("endpoints[%d].name", i)).Problem("missing", "the endpoint's name", ""))
		}
		e.Address = cmp.Or(e.Address, fmt.Sprintf("127.0.0.%d", i+1))
		e.Port = cmp.Or(e.Port, "8000")
		e.Namespace = cmp.Or(e.Namespace, "default")
	}
	return &s, problems.Err()
}

// Build makes a picker from a configuration and applies the state.
func Build(cfg *config.Config, reg picker.Registry, opt picker.Options, s *State) (*picker.Picker, error) {
	opt.Detail = true
	forced := ""
	opt.Force = func(c *picker.Cycle, profile string, candidates []int32) []int32 {
		if profile != "prefill" && profile != "encode" {
			candidates = c.Candidates // today's filters do not change past decisions
		}
		for _, i := range candidates {
			if c.State(i).Name == forced {
				return []int32{i}
			}
		}
		return nil
	}
	p, err := picker.New(cfg, reg, opt)
	if err != nil {
		return nil, err
	}
	p.SetObjects(picker.Objects{Objectives: s.Objectives})
	var list []*picker.Endpoint
	byID := map[string]*Endpoint{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		ep := picker.NewEndpoint(e.Namespace, e.Name, e.Address, e.Port, e.Labels)
		byID[ep.ID()] = e
		list = append(list, ep)
	}
	p.Pool().Set(list)
	for i := range p.Pool().View().States {
		st := &p.Pool().View().States[i]
		p.Pool().Update(0, i, metricsOf(byID[st.ID()]))
		st.Announced = announced(byID[st.ID()])
	}
	for i := range s.Endpoints {
		for n := range s.Endpoints[i].Served {
			forced = s.Endpoints[i].Name
			if err := serve(p, &s.Endpoints[i].Served[n], fmt.Sprintf("served-%d-%d", i, n)); err != nil {
				return nil, fmt.Errorf("endpoints[%d].served[%d]: %w", i, n, err)
			}
		}
	}
	forced = ""
	return p, nil
}

// serve repeats an earlier request.
func serve(p *picker.Picker, r *Request, id string) error {
	d, err := Pick(p, 0, r, id)
	if err != nil {
		return err
	}
	failed := cmp.Or(d.Err, p.Commit(0, d))
	if failed == nil && !r.Held {
		failed = p.Release(0, d)
	}
	if failed != nil {
		return failed
	}
	return nil
}

func metricsOf(e *Endpoint) picker.Metrics {
	m := picker.Metrics{Waiting: e.Waiting, Running: e.Running, KVUsage: e.KV, Custom: e.Custom,
		CacheBlockSize: e.BlockSize, CacheBlocks: e.Blocks}
	if e.LoRA != nil {
		m.LoRA = &picker.LoRA{Max: e.LoRA.Max, Running: e.LoRA.Running, Waiting: e.LoRA.Waiting}
	}
	return m
}

func announced(e *Endpoint) *picker.Announced {
	if e.Ready == nil && e.Sessions == nil && e.MaxQPS == 0 {
		return nil
	}
	return &picker.Announced{Ready: e.Ready == nil || *e.Ready, Sessions: e.Sessions, QPS: e.QPS, MaxQPS: e.MaxQPS}
}

// carried are the types of plug-ins whose state a live state includes: requests in flight, and sessions.
var carried = map[string]bool{"inflight-load-producer": true, "session-affinity-filter": true,
	"session-affinity-scorer": true, "session-sticky-scorer": true,
	"round-robin-picker": true} // its turn does not matter

// Unknown returns notes about plug-ins of a configuration whose state a live state lacks.
func Unknown(p *picker.Picker, s *State) (notes []string) {
	for _, pl := range p.Plugins() {
		_, keeps := pl.(picker.StateKeeper)
		_, indexes := pl.(interface{ Index() kvindex.Config })
		if s.Live && (keeps || indexes) && !carried[pl.Type()] {
			notes = append(notes, fmt.Sprintf(
				"what %s remembers is not in the state of a running picker, which has no prompts, and counts as "+
					"nothing here; a recording holds it (windtunnel epp --record, preview --from)", pl.Name()))
		}
	}
	return notes
}

// Pick decides one request and changes nothing.
func Pick(p *picker.Picker, now machine.Time, r *Request, id string) (*picker.Decision, error) {
	return PickAnswered(p, now, r, id, nil)
}

// PickAnswered is Pick with answers of services outside.
func PickAnswered(p *picker.Picker, now machine.Time, r *Request, id string, answers []picker.Answer) (*picker.Decision,
	error) {
	path, body := r.Path, []byte(r.Body)
	if r.Body == "" && r.Tokens > 0 {
		path, body = "/v1/completions", unknownPrompt(r.Tokens, id)
	}
	path = cmp.Or(path, "/v1/chat/completions")
	head := append(header.Of(":method", "POST", ":path", path, "x-request-id", id), header.FromMap(r.Headers)...)
	req, perr := p.NewRequest(head, body, true, 1)
	if perr == nil {
		_, perr = p.Prepare(now, req)
	}
	if perr != nil {
		return nil, perr
	}
	answers = slices.Clone(answers)
	p.Read(req, answers)
	return p.Pick(now, req, p.Pool().View(), answers, nil), nil
}

// unknownPrompt returns a request of n tokens (four bytes each) that shares no block with any other.
func unknownPrompt(n int, id string) []byte {
	text := strings.Repeat(fmt.Sprintf("%-4.64s", id), min(n, maxUnknown))
	return fmt.Appendf(nil, `{"model":"unknown","prompt":%q}`, text[:min(4*n, len(text))])
}

// maxUnknown limits made-up prompts, in tokens.
const maxUnknown = 1 << 17
