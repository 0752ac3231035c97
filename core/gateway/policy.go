package gateway

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Policies refer to routes (or Gateways, or pools) by name. Envoy Gateway searches for the target in the policy's own
// namespace. In document 003 (docs/documents.md) the two are in different namespaces, so a name that exists only once
// is found in any namespace.

// TargetRef names the target of a policy.
type TargetRef struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Section string `json:"sectionName"`

	At strictyaml.Value `json:"."`
}

// Targets are a policy's targetRefs, or its single targetRef.
type Targets struct {
	List []TargetRef `json:"targetRefs" max:"16"`
	One  *TargetRef  `json:"targetRef"`
}

func (t *Targets) all() []TargetRef {
	if t.One != nil {
		return append(slices.Clone(t.List), *t.One)
	}
	return t.List
}

// about reports whether a policy in a namespace applies to an object. many is the number of objects of that kind and
// name in all namespaces.
func (t *Targets) about(namespace, kind string, m *objects.Meta, many int) bool {
	return slices.ContainsFunc(t.all(), func(r TargetRef) bool {
		return r.Kind == kind && r.Name == m.Name && (m.Namespace == namespace || many == 1)
	})
}

// named returns the number of routes with a name, in all namespaces.
func (s *Set) named(name string) (n int) {
	for i := range s.Routes {
		if s.Routes[i].Name == name {
			n++
		}
	}
	return n
}

// ExtensionPolicy is an EnvoyExtensionPolicy: which external processor Envoy calls for routes, what it sends to it, and
// how long the processor may take.
type ExtensionPolicy struct {
	objects.Meta
	Targets
	// ExtProc is a list in Envoy Gateway and a single object in document 003.
	ExtProc extProcs `json:"extProc"`
	Wasm    inert    `json:"wasm"`
	Lua     inert    `json:"lua"`

	At strictyaml.Value `json:"."`
}

// ExtProc is one external processor.
type ExtProc struct {
	Backends []BackendRef `json:"backendRefs" max:"16"`
	Mode     *struct {
		Request  *ShownMode `json:"request"`
		Response *ShownMode `json:"response"`
		Override inert      `json:"allowModeOverride"`
	} `json:"processingMode"`
	// Timeout limits one answer of the processor. Document 003 calls it Processing.
	Timeout    *Duration `json:"messageTimeout"`
	Processing *Duration `json:"processingTimeout"`
	FailOpen   *bool     `json:"failOpen"`
	Metadata   inert     `json:"metadata"`

	At strictyaml.Value `json:"."`
}

// ShownMode says which parts of a message the processor gets.
type ShownMode struct {
	Headers    string `json:"headers" oneof:"SEND,SKIP,DEFAULT"` // document 003's
	Body       string `json:"body" oneof:"NONE,BUFFERED,STREAMED,BUFFERED_PARTIAL,FULL_DUPLEX_STREAMED,Buffered,Streamed,BufferedPartial,FullDuplexStreamed"`
	Attributes inert  `json:"attributes"`
}

type extProcs []ExtProc

// ReadYAML reads one processor, or a list.
func (x *extProcs) ReadYAML(v strictyaml.Value) strictyaml.Problems {
	if v.IsList() {
		var list []ExtProc
		p := v.Decode(&list)
		*x = list
		return p
	}
	var one ExtProc
	p := v.Decode(&one)
	*x = extProcs{one}
	return p
}

func (x *ExtensionPolicy) check(v strictyaml.Value) {
	if len(x.ExtProc) > 1 {
		v.Get("extProc").Fail(fmt.Sprintf("found %d", len(x.ExtProc)), "one: the endpoint picker", "")
	}
	for i := range x.ExtProc {
		if len(x.ExtProc[i].Backends) == 0 {
			x.ExtProc[i].At.Get("backendRefs").Fail("there are none", "the Service of the endpoint picker", "")
		}
	}
}

// Body says how a picker gets the body of a message.
type Body string

// The values of Body.
const (
	BodyFullDuplex Body = "FULL_DUPLEX_STREAMED"
	BodyBuffered   Body = "BUFFERED"
	BodyStreamed   Body = "STREAMED"
	BodyUnseen     Body = "NONE"
)

// Asking says how Envoy asks a route's pool's picker, where a policy sets that.
type Asking struct {
	Request, Response Body
	// Timeout limits an answer of the picker; 0 is not set. It has no effect on full-duplex bodies.
	Timeout  time.Duration
	FailOpen bool
}

// Responses returns which parts of responses the picker gets. Where no policy says so, they are the same as for
// requests, but none beside whole requests.
func (a Asking) Responses() Body {
	switch {
	case a.Response != "":
		return a.Response
	case a.Request == BodyBuffered:
		return BodyUnseen
	}
	return a.Request
}

func (m *ShownMode) shown() Body {
	if m == nil {
		return BodyUnseen
	}
	switch strings.ToUpper(strings.ReplaceAll(m.Body, "_", "")) {
	case "BUFFERED", "BUFFEREDPARTIAL":
		return BodyBuffered
	case "STREAMED":
		return BodyStreamed
	case "FULLDUPLEXSTREAMED":
		return BodyFullDuplex
	}
	return BodyUnseen
}

// extension returns the policy to which a route's filter refers: in its own namespace, or elsewhere if there is only
// one.
func (b *builder) extension(namespace, name string) *ExtensionPolicy {
	var anywhere []*ExtensionPolicy
	for i := range b.Extensions {
		x := &b.Extensions[i]
		if x.Name == name && x.Namespace == namespace {
			return x
		}
		if x.Name == name {
			anywhere = append(anywhere, x)
		}
	}
	if len(anywhere) == 1 {
		return anywhere[0]
	}
	return nil
}

// extend applies the policies for a route to the way the route asks its picker.
func (b *builder) extend(r *HTTPRoute, to *Route) {
	for i := range b.Extensions {
		if x := &b.Extensions[i]; x.about(x.Namespace, "HTTPRoute", &r.Meta, b.named(r.Name)) {
			b.asks(x, to)
		}
	}
}

func (b *builder) asks(x *ExtensionPolicy, to *Route) {
	if len(x.ExtProc) == 0 {
		return
	}
	p := &x.ExtProc[0]
	a := &Asking{Request: BodyUnseen, Response: BodyUnseen}
	if p.Mode != nil {
		a.Request, a.Response = p.Mode.Request.shown(), p.Mode.Response.shown()
	}
	for _, d := range []*Duration{p.Timeout, p.Processing} {
		if d != nil {
			a.Timeout = time.Duration(*d)
		}
	}
	a.FailOpen = p.FailOpen != nil && *p.FailOpen
	to.Asking = a
	if ref := &p.Backends[0]; to.picker == nil {
		to.picker = &PickerService{cmp.Or(ref.Namespace, x.Namespace), ref.Name, ref.Port}
	}
	if p.Processing != nil {
		b.note(p.At.Get("processingTimeout").Problem(
			"processingTimeout is document 003's; Envoy Gateway calls it messageTimeout", "",
			"it bounds each answer of the picker").Error())
	}
	if a.Timeout > 0 && a.Request == BodyFullDuplex {
		b.note(p.At.Problem("a timeout of the picker has no effect on full-duplex bodies", "",
			"the picker's own limits count").Error())
	}
}

// HeaderPolicy is document 003's EnvoyFilter. It changes headers of a route, with Envoy's variables. Istio's
// EnvoyFilters have another form and are not read.
type HeaderPolicy struct {
	objects.Meta
	Targets
	Request  *HeaderModifier `json:"requestHeaderModifier"`
	Response *HeaderModifier `json:"responseHeaderModifier"`

	At strictyaml.Value `json:"."`
}

// variables maps the document's variables to Envoy's equivalents. The document calls the pod that serves the request
// the upstream's cluster.
var variables = map[string]string{"%REQ_ID%": "%REQ(X-REQUEST-ID)%", "%UPSTREAM_CLUSTER%": "%UPSTREAM_HOST%",
	"%PROTOCOL%": "%PROTOCOL%", "%START_TIME%": "%START_TIME%", "%DURATION%": "%DURATION%",
	"%UPSTREAM_HOST%": "%UPSTREAM_HOST%"}

var (
	variableForm = regexp.MustCompile(`%[^%]*%`)
	ofHeader     = regexp.MustCompile(`^%(REQ|RESP|UPSTREAM_HEADER)\(([-:A-Za-z0-9?]+)\)%$`)
)

func (x *HeaderPolicy) check(strictyaml.Value) {
	for _, m := range []*HeaderModifier{x.Request, x.Response} {
		if m == nil {
			continue
		}
		m.check()
		for _, list := range [][]HeaderValue{m.Set, m.Add} {
			for i := range list {
				h := &list[i]
				h.Variables = true
				h.Value = variableForm.ReplaceAllStringFunc(h.Value, func(v string) string {
					if to, known := variables[v]; known {
						return to
					}
					if of := ofHeader.FindStringSubmatch(v); of != nil {
						return "%" + strings.Replace(of[1], "UPSTREAM_HEADER", "RESP", 1) + "(" + of[2] + ")%"
					}
					h.At.Get("value").Fail("found "+v,
						"%REQ_ID%, %PROTOCOL%, %START_TIME%, %DURATION%, %UPSTREAM_CLUSTER%, %UPSTREAM_HOST%, "+
							"%REQ(name)%, %RESP(name)% or %UPSTREAM_HEADER(name)%", "")
					return v
				})
			}
		}
	}
}

// headers applies the policies for a route's headers.
func (b *builder) headers(r *HTTPRoute, to *Route) {
	for i := range b.HeaderPolicies {
		x := &b.HeaderPolicies[i]
		if !x.about(x.Namespace, "HTTPRoute", &r.Meta, b.named(r.Name)) {
			continue
		}
		to.RequestHeaders, to.ResponseHeaders = to.RequestHeaders.and(x.Request), to.ResponseHeaders.and(x.Response)
	}
}

// and returns a modifier that applies both, one after the other.
func (m *HeaderModifier) and(more *HeaderModifier) *HeaderModifier {
	switch {
	case m == nil:
		return more
	case more == nil:
		return m
	}
	return &HeaderModifier{Set: slices.Concat(m.Set, more.Set), Add: slices.Concat(m.Add, more.Add),
		Remove: slices.Concat(m.Remove, more.Remove), At: m.At}
}
