// Package roundrobin is the plainest endpoint picker that is still correct: it
// reads the request as the real EPP's default parsers do, refuses what they
// refuse, and takes the ready endpoints in turn. It is what a pool without an
// EndpointPickerConfig uses, and the yardstick for the ones with one.
package roundrobin

import (
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/picker/parse"
	"github.com/windtunnel/windtunnel/core/stream"
)

// Picker takes endpoints in turn. It is not safe for concurrent use.
type Picker struct {
	// Errors is the form of refusals.
	Errors stream.ErrorStyle
	// Endpoints are the ready model servers, as ip:port, and Names what people
	// call them; both in the same order.
	Endpoints []string
	Names     []string

	turn    int
	parsers []parse.Parser
}

// New makes a picker over endpoints that all are ready.
func New(errors stream.ErrorStyle, endpoints, names []string) *Picker {
	return &Picker{Errors: errors, Endpoints: endpoints, Names: names, parsers: []parse.Parser{
		parse.New(parse.TypeOpenAI), parse.New(parse.TypeAnthropic), parse.New(parse.TypeVLLMHTTP)}}
}

// Pick decides for one request.
func (p *Picker) Pick(head header.List, body []byte) stream.Decision {
	path, method := head.Get(":path"), head.Get(":method")
	details := []flow.Detail{}
	if len(body) > 0 || method == "POST" {
		parser, err := parse.Choose(p.parsers, path)
		if err != nil {
			return p.refuse(404, "there is nothing at "+strconv.Quote(parse.CleanPath(path))+"; try POST /v1/chat/completions")
		}
		read, err := parser.Parse(path, body)
		if err != nil {
			return p.refuse(400, err.Error())
		}
		if read.JSON() && read.Model == "" {
			return p.refuse(400, "model not found in request body")
		}
		details = append(details, flow.D("model", read.Model))
	} else if !strings.HasPrefix(path, "/v1/") && path != "/health" && path != "/metrics" {
		return p.refuse(404, "there is nothing at "+strconv.Quote(parse.CleanPath(path))+"; try POST /v1/chat/completions")
	}
	if len(p.Endpoints) == 0 {
		return p.refuse(503, "the pool has no ready endpoint")
	}
	i := p.turn % len(p.Endpoints)
	p.turn++
	to, name := p.Endpoints[i], p.Names[i]
	details = append([]flow.Detail{flow.D("endpoint", to), flow.D("name", name), flow.D("candidates", len(p.Endpoints))}, details...)
	return stream.Decision{Endpoint: to, Details: details, Set: Destination(to, name), ResponseSet: header.Of("x-selected-pod", name)}
}

// Destination are the headers that say where a request goes: the ecosystem's,
// by which Envoy routes, and those of documents 002 and 003, for people.
func Destination(endpoint, name string) header.List {
	return header.Of("x-gateway-destination-endpoint", endpoint, "x-target-pod", endpoint, "x-selected-pod", name)
}

func (p *Picker) refuse(status int, message string) stream.Decision {
	a := p.Errors.Answer(&apierror.Error{Status: status, Message: message})
	return stream.Decision{Answer: &a, Reason: message}
}
