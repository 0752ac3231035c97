package virtual

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/scenario"
)

// scrapeInterval is how often the picker reads the model servers' figures, as
// in a live run: between two scrapes it decides on old ones.
const scrapeInterval = machine.Time(50 * time.Millisecond)

// picking is the picker of a pool with an EndpointPickerConfig, driven by the
// event queue: the same core/picker and flow control as live.
type picking struct {
	w       *world
	p       *picker.Picker
	fc      *flowcontrol.Controller
	fx      flowcontrol.Effects
	waiting map[flowcontrol.RequestID]*pick
	last    flowcontrol.RequestID
	number  uint64
	wakeAt  machine.Time
	pumping bool
	spare   []*picker.Decision // of requests that have ended, to be used again
	explain bool               // somebody keeps the reasons of each decision
}

// pick is one request at the picker.
type pick struct {
	id   flowcontrol.RequestID
	r    *request
	req  *picker.Request
	d    *picker.Decision
	resp *picker.Response
	// placed is true from the decision on, also when that is forgotten.
	placed bool
	// answers to what the plug-ins ask the outside.
	answers []picker.Answer
	// admission says in words how flow control let it in.
	admission string
}

// errNobody is the answer to a plug-in's question in virtual time, where no
// HTTP service is: the plug-in decides as it does when that service is down.
var errNobody = errors.New("there is no one to ask in virtual time")

func newPicking(w *world, s *scenario.Scenario, p *scenario.Pool) (*picking, error) {
	c := &p.EPP.Config
	cfg, err := config.Read(c.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	k := &picking{w: w, waiting: map[flowcontrol.RequestID]*pick{}, explain: flow.KeepsExplanations(w.rec)}
	if k.p, err = picker.New(cfg, plugins.Builtin(), picker.Options{Seed: s.Seed, AllowExperimental: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	if k.p.FlowControl() {
		fc, err := plugins.FlowControl(k.p)
		if err == nil {
			k.fc, err = flowcontrol.NewController(fc)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: flowControl: %w", c.File, err)
		}
	}
	var endpoints []*picker.Endpoint
	for _, sv := range w.servers {
		host, port, err := net.SplitHostPort(sv.endpoint)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, picker.NewEndpoint("default", sv.name, host, port, p.Labels(sv.index)))
	}
	k.p.Pool().Set(endpoints)
	w.kv.connect(k.p)
	k.scrape()
	return k, nil
}

// scrape brings every server's figures to the picker.
func (k *picking) scrape() {
	v := k.p.Pool().View()
	indexes := make([]int, len(v.States))
	for i := range indexes {
		indexes[i] = i
	}
	k.p.Pool().Update(k.w.now, indexes, func(_ int, st *picker.State) {
		sv := k.w.byAddr[st.HostPort()]
		stats, cfg := sv.engine.Stats(), sv.engine.Config()
		st.Waiting, st.Running = int64(stats.Waiting), int64(stats.Running)
		st.CacheBlockSize, st.CacheBlocks = int32(cfg.BlockSize), int32(cfg.NumGPUBlocks)
		if cfg.NumGPUBlocks > 0 {
			st.KVUsage = float64(sv.engine.KVBlocksUsed()) / float64(cfg.NumGPUBlocks)
		}
		if len(k.w.adapters) > 0 {
			st.LoRA = sv.loras()
		}
	})
	k.loads()
	k.pump()
}

// decide asks the picker; the stream is told at once, or when flow control
// lets the request go.
func (k *picking) decide(r *request, head header.List, body []byte) {
	k.number++
	req, bad := k.p.NewRequest(head, body, true, k.number)
	x := &pick{r: r, req: req}
	if bad == nil {
		var needs []picker.Need
		needs, bad = k.p.Prepare(k.w.now, req)
		for i := range needs {
			if a, ok := k.w.kv.answer(r, &needs[i]); ok {
				x.answers = append(x.answers, a)
				continue
			}
			if needs[i].Key == plugins.KeyRender { // a renderer answers as the model server tokenises
				ids := r.promptTokens()
				req.PromptTokens, req.Tokens = [][]uint32{ids}, len(ids)
				continue
			}
			x.answers = append(x.answers, picker.Answer{Plugin: needs[i].Plugin, Key: needs[i].Key, Err: errNobody})
		}
	}
	if bad != nil {
		r.decided(k.refuse(bad))
		return
	}
	r.pick = x
	if k.fc == nil {
		k.place(x)
		return
	}
	k.last++
	x.id = k.last
	k.waiting[x.id] = x
	k.fc.Input(k.w.now, flowcontrol.Arrive{ID: x.id, Priority: req.Objective.Priority, FairnessID: req.FairnessID,
		Bytes: int64(req.SizeBytes), Tokens: int64(req.Tokens), TTFT: machine.Time(req.TTFTMs * float64(machine.Millisecond))}, &k.fx)
	k.pump()
}

// place picks, commits and tells the stream.
func (k *picking) place(x *pick) {
	k.w.kv.advance()
	var spare *picker.Decision
	if n := len(k.spare); n > 0 {
		spare, k.spare = k.spare[n-1], k.spare[:n-1]
	}
	x.d = k.p.Pick(k.w.now, x.req, k.p.Pool().View(), x.answers, spare)
	x.d.Admission = x.admission
	if x.d.Err != nil {
		bad := x.d.Err
		x.d = nil
		x.r.decided(k.refuse(bad))
		return
	}
	x.placed = true
	k.p.Commit(k.w.now, x.d)
	set, remove := x.d.RequestHeaders(len(x.r.Body))
	out := stream.Decision{Endpoint: x.d.Destination(), Set: set, Remove: remove}
	if k.w.rec != nil {
		out.Details = x.d.Recorded(k.explain)
	}
	x.r.decided(out)
}

func (k *picking) refuse(e *picker.Error) stream.Decision {
	a := k.w.stream.Errors.Answer(e.Code.Status(), e.Message)
	return stream.Decision{Answer: &a, Reason: string(e.Code) + ": " + e.Message}
}

// response lets the plug-ins see a piece of the response.
func (k *picking) response(x *pick, status string, chunk []byte, end bool) {
	if x.d == nil {
		return
	}
	if x.resp == nil {
		x.resp, _ = k.p.ResponseHeaders(k.w.now, x.d, header.Of(":status", status, "content-type", "text/event-stream"))
	}
	x.resp.Body(k.w.now, chunk, end)
}

// ended gives back what the request held at the picker.
func (k *picking) ended(x *pick) {
	if x.d != nil {
		if x.resp != nil {
			x.resp.Flush(k.w.now)
		}
		k.p.Release(k.w.now, x.d)
		k.spare = append(k.spare, x.d)
		x.d, x.resp = nil, nil
	}
	if k.fc == nil {
		return
	}
	if _, waits := k.waiting[x.id]; waits && !x.placed {
		k.fc.Input(k.w.now, flowcontrol.Gone{ID: x.id}, &k.fx)
	} else if x.placed {
		delete(k.waiting, x.id)
		k.loads()
		k.fc.Input(k.w.now, flowcontrol.Done{ID: x.id}, &k.fx)
	}
	k.pump()
}

func (k *picking) loads() {
	if k.fc != nil {
		k.fc.Input(k.w.now, flowcontrol.Pool{Loads: plugins.Loads(k.p, k.p.Pool().View())}, &k.fx)
	}
}

// pump plays what flow control wants done by now and keeps its alarm.
func (k *picking) pump() {
	if k.fc == nil || k.pumping {
		return
	}
	k.pumping = true
	k.fc.Advance(k.w.now, &k.fx)
	for i := 0; i < len(k.fx.List); i++ { // what an effect brings about joins the list
		e := k.fx.List[i]
		k.effect(&e)
	}
	k.fx.Reset()
	k.pumping = false
	if at, ok := k.fc.Next(); ok && at != k.wakeAt {
		k.wakeAt = at
		k.w.queue.Push(at, machine.ClassTimer, event{kind: wakePicker})
	}
}

func (k *picking) effect(e *flowcontrol.Effect) {
	x := k.waiting[e.ID]
	if x == nil {
		return
	}
	switch e.Kind {
	case flowcontrol.Decided:
		if refusal, refused := e.Refusal(); refused {
			delete(k.waiting, e.ID)
			a := stream.Answer{Status: refusal.Status, Body: []byte(refusal.Body())}
			x.r.decided(stream.Decision{Answer: &a, Reason: refusal.Message})
			return
		}
		k.fc.Input(k.w.now, flowcontrol.Placed{ID: x.id}, &k.fx)
		x.admission = e.Admission()
		k.place(x)
		if !x.placed {
			k.fc.Input(k.w.now, flowcontrol.Done{ID: x.id}, &k.fx)
			delete(k.waiting, e.ID)
		}
		k.loads()
	case flowcontrol.Evict:
		a := stream.Answer{Status: flowcontrol.Evicted().Status, Body: []byte(flowcontrol.Evicted().Body())}
		x.r.evicted(a)
	}
}
