package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Conversations are series of requests that continue one another: each carries the whole conversation so far. The
// workload's requests are then the requests of all conversations, and concurrency and rate count conversations.
type Conversations struct {
	// How many requests a conversation has. Left out: one.
	Turns dist.Dist `json:"turns" unit:"count" min:"1" max:"10000"`
	// How long the user thinks between an answer and the next request.
	ThinkTime dist.Dist `json:"thinkTime"`
	// The header that names the conversation, such as x-session-id, for pickers and sidecars that route by it. Left
	// out: none.
	SessionHeader string `json:"sessionHeader"`
}

// AdapterShare is a LoRA adapter that some of the conversations ask for.
type AdapterShare struct {
	// The adapter's name, one of modelServer.loraAdapters.
	Name string `json:"name"`
	// The part of all conversations that ask for it in place of the model.
	Share Share `json:"share"`
}

// Leaving are clients that leave on purpose.
type Leaving struct {
	// How long after the request the client leaves, unless the request has ended.
	After dist.Dist `json:"after"`
	// The part of all requests whose client leaves, drawn by the request's number. Without rate and requests, all
	// clients leave.
	Rate Share `json:"rate"`
	// The numbers of the requests whose client leaves, besides those drawn: 1 is the first that the workload sends.
	Requests []int `json:"requests" max:"10000"`
}

// given reports whether any client leaves.
func (l *Leaving) given() bool {
	return l.After.Quantile(1) > 0 || l.Rate > 0 || len(l.Requests) > 0
}

// headerName reports whether a name is valid for a header: letters, digits, - and _ of RFC 9110's token.
func headerName(name string) bool {
	return name != "" && len(name) <= 256 && !slices.ContainsFunc([]byte(name), func(c byte) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	})
}

// headerValue reports whether a value is valid for a header.
func headerValue(value string) bool {
	return len(value) <= 4096 && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

const headerValueHelp = "printable ASCII, at most 4096 characters"

// reserved are the headers that the client sends itself.
var reserved = []string{"host", "content-type", "content-length", "transfer-encoding", "connection", "x-request-id"}

// checkAsked checks the requests of a workload, or of a class of it.
func (s *checker) checkAsked(w *Workload, where string) {
	add := func(path, found, expected string) { s.bad(where+"."+path, found, expected) }
	s.checkShared(&w.Prompt.Shared, where+".prompt.shared")
	s.checkModel(w, where)
	if given := countTrue(w.Prompt.Text != "", !w.Prompt.Bytes.IsZero(), w.Prompt.Characters.Quantile(1) > 0,
		w.Prompt.Tokens.Quantile(1) > 0); given > 1 {
		add("prompt", "several of text, bytes, characters and tokens are given", "one of them")
	}
	if w.OutputTokens.Quantile(1) > 0 && w.MaxTokens > 0 {
		add("outputTokens", "given beside maxTokens", "one of them")
	}
	own := func(header string) bool {
		return headerName(header) && !slices.Contains(reserved, strings.ToLower(header))
	}
	if name := w.Conversations.SessionHeader; name != "" && !own(name) {
		add("conversations.sessionHeader", fmt.Sprintf("found %q", name),
			"the name of a header that the client does not send itself, such as x-session-id")
	}
	if w.Conversations.ThinkTime.Quantile(1) > 0 && w.Conversations.Turns.Quantile(1) <= 1 {
		add("conversations.thinkTime", "given, and conversations have one turn", "turns: 2 or more beside it")
	}
	if w.API == CompletionsAPI && w.Conversations.Turns.Quantile(1) > 1 {
		add("api", "completions, and conversations have several turns", "chat, whose requests have a history")
	}
	if s.Workload.API == MessagesAPI || s.Workload.API == ResponsesAPI {
		s.refuse(where, []string{"outputTokens", "includeUsage", "trace"},
			fmt.Sprintf("given with api: %s", s.Workload.API), "nothing: its bodies have no place for it")
		if s.Workload.API == MessagesAPI && w.MaxTokens == 0 {
			add("maxTokens", "missing, which Anthropic's API insists on", "a number of tokens such as 512")
		}
	}
	if w.BodyFields != "" {
		const object = `a JSON object such as {"n": 2}`
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(w.BodyFields), &fields); err != nil {
			add("bodyFields", err.Error(), object)
		}
		for _, name := range []string{"model", "messages", "input", "prompt", "stream", "max_tokens",
			"max_output_tokens"} {
			if fields[name] != nil {
				add("bodyFields", fmt.Sprintf("%q in it", name), object+"; that field is the workload's own")
			}
		}
	}
	sum := 0.0
	for i, h := range w.Headers {
		at := fmt.Sprintf("headers[%d]", i)
		if !own(h.Name) {
			add(at+".name", fmt.Sprintf("found %q", h.Name),
				"the name of a header that the client does not send itself, such as x-llm-d-inference-objective")
		}
		if !headerValue(h.Value) {
			add(at+".value", fmt.Sprintf("found %.80q", h.Value), headerValueHelp)
		}
	}
	for i := range w.LoRAAdapters {
		a, at := &w.LoRAAdapters[i], fmt.Sprintf("loraAdapters[%d]", i)
		sum += float64(a.Share)
		switch known := s.adapters(); {
		case a.Share == 0:
			add(at+".share", "missing", shareHelp)
		case known != nil && !slices.Contains(known, a.Name):
			s.unknown(where+"."+at+".name", a.Name, "one of pools[].modelServer.loraAdapters", known)
		case a.Name == "":
			add(at+".name", "missing", "the adapter's name")
		}
	}
	if sum > 1+1e-9 {
		add("loraAdapters", fmt.Sprintf("the shares come to %.4g%%", 100*sum),
			"at most 100%; the rest asks for the model itself")
	}
	if l := &w.Leaving; l.given() {
		if l.After.Quantile(0) < 1 {
			add("leaving.after", "missing, or not above zero", l.After.Expected())
		}
		s.numbers(where+".leaving.requests", l.Requests, 1, w.Requests, "a request of the workload")
	}
}

// adapters returns the adapters that the simulated servers know; nil with external servers, or without a pool.
func (s *Scenario) adapters() []string {
	if len(s.Pools) == 0 || slices.ContainsFunc(s.Pools, func(p Pool) bool { return len(p.Endpoints) > 0 }) {
		return nil
	}
	known := []string{}
	for i := range s.Pools {
		known = append(known, s.Pools[i].ModelServer.LoRAAdapters...)
	}
	return known
}

// objectInside returns the text between the braces of an object.
func objectInside(text string) []byte {
	inside := bytes.TrimSpace([]byte(text))
	if len(inside) == 0 {
		return nil
	}
	return bytes.TrimSpace(inside[1 : len(inside)-1])
}

// conversations sets the generator's conversations, headers, adapters and leaving clients.
func (w *Workload) conversations(c *workload.Config) {
	c.Requests = w.Requests
	c.API = workloadAPIs[w.API]
	c.Fields = w.fields()
	c.SessionHeader = w.Conversations.SessionHeader
	if w.Conversations.Turns.Quantile(1) > 1 {
		c.Turns = w.Conversations.Turns.Sample
		if w.Conversations.ThinkTime.Quantile(1) > 0 {
			c.ThinkTime = w.Conversations.ThinkTime.Sample
		}
	}
	for _, h := range w.Headers {
		c.Headers = append(c.Headers,
			workload.Header{Header: header.Header{Name: strings.ToLower(h.Name), Value: h.Value},
				Share: cmp.Or(float64(h.Share), 1)})
	}
	for _, a := range w.LoRAAdapters {
		c.Adapters = append(c.Adapters, workload.Adapter{Name: a.Name, Share: float64(a.Share)})
	}
	if l := &w.Leaving; l.given() {
		c.Leaving = workload.Leaving{Share: float64(l.Rate), Numbers: map[int]bool{},
			After: func(d *machine.Draw) int64 { return max(1, l.After.Sample(d)) }}
		for _, n := range l.Requests {
			c.Leaving.Numbers[n-1] = true
		}
	}
}
