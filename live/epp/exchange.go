package epp

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/stream"
)

// exchange follows one picked request: the plug-ins' response hooks, token
// usage, and giving back what the decision held.
type exchange struct {
	k    *Picking
	w    *waiter // nil for a response that nobody picked for
	resp *picker.Response
	once sync.Once
	// noted says that the decision's figures are taken; bytes is what was sent on.
	noted bool
	bytes int
	// settled, when given, is told of the end.
	settled func()

	began  machine.Time  // when the request was whole
	lastAt machine.Time  // when the last piece came
	spent  time.Duration // on the response
}

func (x *exchange) decision() *picker.Decision {
	if x.w == nil {
		return nil
	}
	return x.w.d
}

// lock takes the picker's lock where a plug-in has a hook; without one a
// response is nobody's but its own request's.
func (x *exchange) lock(hooked bool) (unlock func()) {
	if !hooked {
		return func() {}
	}
	x.k.mu.Lock()
	return x.k.mu.Unlock
}

// Sent takes the decision's figures, once it is on its way.
func (x *exchange) Sent() {
	if x.w == nil || x.noted {
		return
	}
	x.noted = true
	x.k.note(x.w)
	x.k.o.Metrics.dispatched(x.w.d, x.bytes)
}

// ResponseMetadata takes which endpoint Envoy says has served the request.
func (x *exchange) ResponseMetadata(m Metadata) {
	if d := x.decision(); d != nil {
		d.Request.Served = servedBy(m)
	}
}

func servedBy(m Metadata) (s picker.Served) {
	lb, told := m[picker.NamespaceLB]
	endpoint, known := lb.GetFields()[picker.KeyServed].GetKind().(*structpb.Value_StringValue)
	s.Told, s.Known = told, known
	if known {
		s.Endpoint = endpoint.StringValue
	}
	return s
}

// ResponseHeaders runs the hooks and echoes the headers, as the real EPP does.
func (x *exchange) ResponseHeaders(head header.List) header.List {
	defer x.lock(x.k.hooks.ResponseHeader)()
	r, set := x.k.p.ResponseHeaders(x.k.o.Now(), x.decision(), head.Normalize())
	x.resp = r
	return append(set, x.k.told(x.decision())...)
}

// ResponseRemove lists response headers that are no longer true.
func (x *exchange) ResponseRemove() []string {
	if x.resp != nil && x.resp.DropContentLength() {
		return []string{"content-length"}
	}
	return nil
}

// ResponseBody runs the hooks on one piece. It returns nil when nothing is to
// be sent yet.
func (x *exchange) ResponseBody(chunk []byte, end bool) ([]byte, any) {
	if x.resp == nil {
		return chunk, nil
	}
	started := time.Now()
	now := x.k.o.Now()
	out := x.body(now, chunk, end)
	if x.w != nil && len(chunk) > 0 {
		if x.lastAt > 0 {
			x.k.o.Metrics.chunk(x.resp, (now - x.lastAt).Duration())
		}
		x.lastAt = now
	}
	x.spent += time.Since(started)
	return out, metadataStruct(x.resp.Metadata(), end)
}

func (x *exchange) body(now machine.Time, chunk []byte, end bool) []byte {
	defer x.lock(x.k.hooks.ResponseBody)()
	return x.resp.Body(now, chunk, end)
}

// Flush is what was held back of a response that ended without a last piece.
func (x *exchange) Flush() []byte {
	if x.resp == nil {
		return nil
	}
	defer x.lock(x.k.hooks.ResponseBody)()
	return x.resp.Flush(x.k.o.Now())
}

func metadataStruct(m map[string]map[string]any, end bool) any {
	if !end || len(m) == 0 {
		return nil
	}
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for ns, kv := range m {
		inner := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for k, v := range kv {
			if val, err := structpb.NewValue(v); err == nil {
				inner.Fields[k] = val
			}
		}
		out.Fields[ns] = structpb.NewStructValue(inner)
	}
	return out
}

// Evicted is closed when flow control wants the request ended; nil when it
// never will: it ends those with a priority below 0, if at all.
func (x *exchange) Evicted() <-chan struct{} {
	if x.w == nil || x.w.id == 0 || x.w.req.Objective.Priority >= 0 || !x.k.evicts() {
		return nil
	}
	return x.w.evicted
}

func (k *Picking) evicts() bool {
	fc := k.p.Config().FlowControl
	return fc != nil && fc.EnableEviction
}

// EvictedAnswer is what an evicted request is answered with.
func (x *exchange) EvictedAnswer() stream.Answer {
	r := flowcontrol.Evicted()
	return stream.Answer{Status: r.Status, Body: []byte(r.Body()), Set: header.Of(picker.HeaderDropReason, r.Reason)}
}

// End gives back what the decision held.
func (x *exchange) End(stream.Result) {
	if x.w == nil {
		return
	}
	x.once.Do(func() {
		if x.settled != nil {
			defer x.settled()
		}
		x.Sent() // the client may have left before
		x.k.o.Metrics.ended(x.w.d, x.resp, x.began, x.k.o.Now(), x.spent)
		x.release()
		if x.k.o.History <= 0 { // else when it leaves the history
			x.k.spare.Put(x.w.d)
			x.w, x.resp = nil, nil
		}
	})
}

func (x *exchange) release() {
	k := x.k
	queued := k.fc != nil && x.w.id != 0
	defer x.lock(k.hooks.Release || k.hooks.ResponseBody || queued || k.o.History > 0)()
	now := k.o.Now()
	if x.resp != nil {
		x.resp.Flush(now)
	}
	k.p.Release(now, x.w.d)
	if queued {
		delete(k.waiting, x.w.id)
		k.loads(now)
		done := flowcontrol.Done{ID: x.w.id}
		if x.resp != nil {
			done.PromptTokens, done.CompletionTokens = int64(x.resp.Usage.PromptTokens), int64(x.resp.Usage.CompletionTokens)
		}
		k.fc.Input(now, done, &k.fx)
		k.pump(now)
	}
}
