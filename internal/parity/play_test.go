package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/discovery"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// tolerance of scores.
const tolerance = 1e-6

// player plays one line with an endpoint picker: the actions of the clients, the model servers and the cluster, in
// virtual time.
type player struct {
	driver
	line    *Line
	now     machine.Time
	queues  bool              // the picker has flow control
	address map[string]string // by an endpoint's name
	pages   map[string]string // by address
	failing map[string]bool   // addresses
	open    map[string]*exchange
	asked   []*exchange // without an answer yet
	order   []string    // of first answers
	evicted int         // evictions received so far
	stuck   bool        // something due never happened
	faults  []Fault

	// They decide ties: force is the latest request, known are the requests that have an id.
	force atomic.Pointer[exchange]
	known sync.Map

	random bool
	noHit  bool
	weight float64 // of no-hit-lru-scorer

	cluster  *cluster
	gone     map[string]bool // recorded as evicted so far
	answered map[string]bool // recorded as answered so far
	changed  machine.Time    // time of the latest change of an object

	crewed bool // see ceilings
	from   int  // where the current state of a ceiling run begins in order
}

// Fault is one difference.
type Fault struct{ Unit, Field, Recorded, Got string }

// exchange is one request with its answer.
type exchange struct {
	id       string
	step     *Step
	request  *Request
	recorded Observed
	conn     conn
	arrived  machine.Time
	answered machine.Time
	inbox    []Message // received and not processed
	got      []Message // the answer
	evicted  *Message
	done     bool      // has an answer
	started  bool      // its response has begun
	begun    []Message // the picker's messages about the response's headers
	over     bool      // the picker has ended the stream
	closed   bool
}

// hear processes received messages. It reports whether the picker has ended the stream.
func (x *exchange) hear() bool {
	got, over := x.conn.heard()
	x.inbox = append(x.inbox, got...)
	x.over = x.over || over
	return over
}

// opener makes a driver for a configuration. Page returns the metrics page of the model server at an address.
type opener func(c core.Config, page func(address string) (string, error)) (driver, error)

func openVirtual(c core.Config, page func(address string) (string, error)) (driver, error) {
	m, err := core.New(c)
	return &virtual{m: m, page: page}, err
}

// force makes a profile's picker choose given endpoints (picker.Options.Force).
type force func(c *picker.Cycle, profile string, candidates []int32) []int32

// build makes the picker of a recorded configuration.
func build(l *Line, force force) (core.Config, error) {
	cfg := config.Default()
	if l.Config != "" || l.Objects == nil {
		var err error
		if cfg, err = config.Read("the configuration", []byte(l.Config)); err != nil {
			return core.Config{}, err
		}
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{
		AllowExperimental: l.flag("--allow-experimental-plugins") == "true",
		IgnoreSubset:      l.flag("--disable-endpoint-subset-filter") == "true",
		Detail:            true, Force: force, Stopwatch: func() machine.Time { return 0 }})
	if err == nil && cfg.Discovery().PluginRef == "" && l.Objects == nil {
		err = fmt.Errorf("no endpoint discovery is configured")
	}
	return core.Config{Picker: p, EmitScores: true,
		Stream: stream.Config{Errors: stream.EPPErrors, MaxBodyBytes: 64 << 20}}, err
}

// knownFlags are the flags that change a run, and that the player obeys.
var knownFlags = []string{"--allow-experimental-plugins", "--disable-endpoint-subset-filter", "--endpoint-selector",
	"--endpoint-target-ports",
	"--enable-grpc-stream-metrics", "--refresh-prometheus-metrics-interval"}

// flag returns the value of a flag, or "" if it was not given. A switch has the value "true".
func (l *Line) flag(name string) string {
	for i, flag := range l.Flags {
		if given, v, joined := strings.Cut(flag, "="); given != name {
			continue
		} else if joined {
			return v
		}
		if i+1 < len(l.Flags) && !strings.HasPrefix(l.Flags[i+1], "--") {
			return l.Flags[i+1]
		}
		return "true"
	}
	return ""
}

// Play plays a line and returns its differences.
func Play(l *Line) []Fault { return play(l, openVirtual) }

func play(l *Line, open opener) []Fault { return playWith(l, open, nil) }

// playWith plays a line with a function between the recorded choices and the picker.
func playWith(l *Line, open opener, between func(force) force) []Fault {
	pl := &player{line: l, address: map[string]string{}, pages: map[string]string{}, failing: map[string]bool{},
		open: map[string]*exchange{}}
	pl.random = strings.Contains(l.Config, "random-picker")
	if i := strings.Index(l.Config, "pluginRef: no-hit-lru-scorer"); i >= 0 {
		pl.noHit, pl.weight = true, 1
		if _, err := fmt.Sscanf(l.Config[i:], "pluginRef: no-hit-lru-scorer, weight: %f", &pl.weight); err != nil {
			pl.weight = 1
		}
	}
	if l.unknown != nil {
		pl.fault("recording", "unknown", l.unknown.Error(), "not played")
	}
	for _, flag := range l.Flags {
		if name, _, _ := strings.Cut(flag, "="); strings.HasPrefix(name, "--") && !slices.Contains(knownFlags, name) {
			pl.fault("start", "flag", flag, "not played")
		}
	}
	choose := force(pl.choose)
	if between != nil {
		choose = between(choose)
	}
	c, err := build(l, choose)
	if err == nil {
		pl.driver, err = open(c, pl.page)
	}
	if l.StartErrors != nil || l.ExitCode != nil && l.Accepted == nil {
		if err == nil {
			pl.fault("start", "accepted", "refused", "accepted")
		}
		return pl.faults
	}
	if err != nil {
		pl.fault("start", "error", "", err.Error())
		return pl.faults
	}
	pl.queues = c.Picker.FlowControl()
	pl.serve(l.Endpoints)
	if l.Objects != nil {
		if err := pl.startCluster(); err != nil {
			pl.fault("start", "objects", "", err.Error())
			return pl.faults
		}
	} else {
		pl.endpoints(l.Endpoints)
	}
	pl.pass(machine.Second)
	for i := range l.Steps {
		pl.step(&l.Steps[i])
	}
	return pl.faults
}

func (pl *player) fault(unit, field, recorded, got string) {
	pl.faults = append(pl.faults, Fault{unit, field, recorded, got})
}

// serve starts the model servers of new endpoints.
func (pl *player) serve(list []Endpoint) {
	for _, e := range list {
		at := picker.JoinHostPort(e.Address, fmt.Sprint(e.Port))
		pl.address[e.Name] = at
		if _, there := pl.pages[at]; there || e.NotListening {
			continue
		}
		m, known := pl.line.InitialMetrics[e.Name]
		if !known {
			m = Metrics{Waiting: 0.0, Running: 0.0, KV: 0.0}
		}
		pl.pages[at] = m.Page()
	}
}

func (pl *player) page(address string) (string, error) {
	text, there := pl.pages[address]
	if !there || pl.failing[address] {
		return "", errNobody
	}
	return text, nil
}

// endpoints sets the pool's endpoints.
func (pl *player) endpoints(list []Endpoint) {
	var out []*picker.Endpoint
	for _, e := range list {
		ns := e.Namespace
		if ns == "" {
			ns = discovery.DefaultNamespace
		}
		out = append(out, picker.NewEndpoint(ns, e.Name, e.Address, fmt.Sprint(e.Port), e.Labels))
	}
	pl.input(core.Endpoints{List: out})
}

// input passes the picker a message, and waits for its effects.
func (pl *player) input(msg core.Message) {
	pl.Input(msg)
	pl.settle()
}

// round is the interval at which the model servers answer, all at once, because the real picker scrapes them all at
// once. An answer takes at most one round, and so comes before the next scrape.
const round = 50 * machine.Millisecond

// pass lets time pass, from one due moment to the next.
func (pl *player) pass(by machine.Time) {
	for until := pl.now + by; pl.now < until; pl.settle() {
		pl.now = min(until, pl.now-pl.now%round+round)
		pl.With(func(m *core.Machine, _ machine.Time) {
			if at, ok := m.Next(); ok {
				pl.now = min(pl.now, at)
			}
		})
		if pl.advance(pl.now); pl.now%round == 0 {
			pl.settle()
			pl.answer()
		}
	}
}

// settle waits until everything due has happened and was received: until flow control holds all requests without an
// answer, and all scrapes wait.
func (pl *player) settle() {
	var held, evicted, pages int
	settled := pl.await(func() bool {
		pl.listen()
		pl.With(func(m *core.Machine, now machine.Time) {
			held, evicted, pages = 0, 0, m.Scraping()
			if pl.queues {
				s := m.FlowControl().Snapshot(now)
				held = int(s.Queued)
				for _, n := range s.RevocationsFor {
					evicted += int(n)
				}
			}
		})
		return pl.stuck || len(pl.asked) == held && pl.evicted == evicted && pages == pl.waiting()
	})
	if !settled {
		pl.stuck = true
		pl.fault("flow control", "held",
			fmt.Sprintf("%d requests without an answer, %d evictions", len(pl.asked), pl.evicted),
			fmt.Sprintf("%d, %d, %d pages", held, evicted, pages))
	}
}

// listen processes the messages received on the streams.
func (pl *player) listen() {
	for _, x := range slices.Clone(pl.asked) {
		over := x.hear()
		n := 1 + slices.IndexFunc(x.inbox, func(m Message) bool {
			return m.Type == "immediate_response" || m.Type == "request_headers" && x.request.Body == nil ||
				m.Type == "request_body" && m.EOS
		})
		if n == 0 && !over {
			continue
		}
		if n == 0 {
			n = len(x.inbox)
		}
		x.got, x.inbox = x.inbox[:n], x.inbox[n:]
		pl.asked = slices.DeleteFunc(pl.asked, func(a *exchange) bool { return a == x })
		x.done, x.answered = true, pl.now
		pl.order = append(pl.order, x.id)
		pl.compare(x)
	}
	if !pl.queues {
		return
	}
	for _, x := range pl.open {
		if !x.done || x.closed || x.evicted != nil || refused(x.got) {
			continue
		}
		x.hear()
		for _, m := range x.inbox {
			if m.Type == "immediate_response" {
				x.evicted, x.closed = &m, true
				pl.await(func() bool { return x.over || x.hear() })
				pl.evicted++
				x.conn.leave()
				break
			}
		}
	}
}

func (pl *player) step(s *Step) {
	if pl.cluster != nil && pl.clusterStep(s) {
		return
	}
	pages, shown := pl.driver.(pages)
	switch {
	case s.EPPMetrics != nil && shown && pl.cluster == nil:
		pl.compareMetrics(s, pages)
	case s.Request != nil:
		pl.request(s)
	case s.Finish != "":
		play := Response{Usage: s.Usage, Headers: s.ResponseHeaders, Chunks: s.ResponseChunks}
		_ = json.Unmarshal(s.Response, &play.Kind)
		pl.finish(s.Finish, play, s.ResponseSeen)
		pl.pass(100 * machine.Millisecond)
	case s.Metrics != nil || s.MetricsRaw != nil:
		for name, m := range s.Metrics {
			pl.pages[pl.address[name]] = m.Page()
		}
		for name, text := range s.MetricsRaw {
			pl.pages[pl.address[name]] = text
		}
		pl.pass(300 * machine.Millisecond)
	case s.ScrapeFail != nil || s.ScrapeOK != nil:
		for _, name := range s.ScrapeFail {
			pl.failing[pl.address[name]] = true
		}
		for _, name := range s.ScrapeOK {
			delete(pl.failing, pl.address[name])
		}
		pl.pass(500 * machine.Millisecond)
	case s.SleepS > 0:
		pl.pass(machine.Time(s.SleepS * float64(machine.Second)))
	case s.HeadersSent != "":
		if x := pl.open[s.HeadersSent]; x != nil {
			ct := s.ContentType
			if ct == "" {
				ct = "text/event-stream"
			}
			pl.begin(x, ct)
		}
		pl.pass(150 * machine.Millisecond)
	case s.ChunkSent != "" || s.EOSSent != "":
		id, chunk := s.ChunkSent, s.Chunk
		if id == "" {
			id, chunk = s.EOSSent, "data: [DONE]\n\n"
		}
		if x := pl.open[id]; x != nil {
			if !x.started {
				pl.begin(x, "application/json")
			}
			end := s.EOS || s.EOSSent != ""
			pl.respond(x, nil, []string{chunk}, end)
			if end {
				pl.release(x)
			}
		}
		pl.pass(150 * machine.Millisecond)
	case s.EndpointsNow != nil:
		pl.serve(s.EndpointsNow)
		pl.endpoints(s.EndpointsNow)
		pl.pass(800 * machine.Millisecond)
	case s.EndpointsRaw != nil:
		if list, err := discovery.Read("endpoints.yaml", []byte(*s.EndpointsRaw), ""); err == nil {
			pl.input(core.Endpoints{List: list})
		}
		pl.pass(700 * machine.Millisecond)
	case s.Cancels != "":
		if x := pl.open[s.Cancels]; x != nil {
			pl.release(x)
		}
		pl.pass(200 * machine.Millisecond)
	case s.Distribution != nil:
		pl.distribution(s)
	case s.Conversation != "":
		pl.conversation(s)
	default:
		pl.flowStep(s)
	}
}

func (pl *player) request(s *Step) {
	rq := s.Request
	x := &exchange{id: rq.ID, step: s}
	_ = json.Unmarshal(s.Observed, &x.recorded)
	pl.send(x, rq)
	if s.Blocked != nil {
		var wait *float64
		_ = json.Unmarshal(s.Blocked, &wait)
		d := .15
		if wait != nil && *wait > 0 {
			d = *wait
		}
		pl.pass(machine.Time(d * float64(machine.Second)))
		if x.done == (wait != nil) {
			pl.fault(x.id, "blocked", fmt.Sprint(wait != nil), fmt.Sprint(!x.done))
		}
	} else if pl.queues {
		pl.pass(11 * machine.Millisecond) // 15 ms in all between two requests
	}
	if !s.Hold {
		for n := 0; n < 2000 && !x.done; n++ {
			pl.pass(10 * machine.Millisecond)
		}
		pl.finish(rq.ID, playOf(s), s.ResponseSeen)
	}
}

// send sends a request, which flow control may hold.
func (pl *player) send(x *exchange, rq *Request) {
	pl.pass(2 * machine.Millisecond)
	pl.open[rq.ID] = x
	pl.force.Store(x)
	if id := rq.Headers[picker.HeaderRequestID]; id != "" {
		pl.known.Store(id, x)
	}
	x.request, x.arrived, x.conn = rq, pl.now, pl.connect()
	pl.asked = append(pl.asked, x)
	x.conn.send(&stream.Message{Kind: stream.Headers,
		Head: append(header.Of(":method", rq.Method, ":path", rq.Path), header.FromMap(rq.Headers)...),
		End:  rq.Body == nil}, rq.metadata("headers"))
	parts := rq.parts()
	for i, part := range parts {
		x.conn.send(&stream.Message{Kind: stream.Body, Body: part, End: i == len(parts)-1}, rq.metadata("body"))
	}
	pl.settle()
	if pl.queues {
		pl.pass(2 * machine.Millisecond)
	}
}

// metadata returns the metadata of messages about headers or the body.
func (rq *Request) metadata(about string) map[string]map[string]any {
	if rq.MetadataOn == "" || rq.MetadataOn == "all" || rq.MetadataOn == about {
		return rq.Metadata
	}
	return nil
}

// parts returns the pieces in which the body is sent.
func (rq *Request) parts() (out [][]byte) {
	if rq.Body == nil {
		return nil
	}
	rest := []byte(*rq.Body)
	for _, n := range rq.Chunks {
		n = min(n, len(rest))
		out, rest = append(out, rest[:n]), rest[n:]
	}
	if len(rest) > 0 || len(out) == 0 {
		out = append(out, rest)
	}
	return out
}

func (pl *player) distribution(s *Step) {
	count := map[string]int{}
	body := string(s.Template)
	for i := range s.Requests {
		id := fmt.Sprintf("d%d", i)
		x := &exchange{id: id}
		pl.send(x, &Request{ID: id, Method: "POST", Path: "/v1/chat/completions",
			Headers: map[string]string{"x-request-id": id}, Body: &body})
		count[x.destination()]++
		delete(pl.open, id)
		pl.release(x)
	}
	for a, want := range s.Distribution {
		share := float64(want+count[a]) / float64(2*s.Requests)
		if math.Abs(float64(want-count[a])) > 4.5*math.Sqrt(2*float64(s.Requests)*share*(1-share))+2 {
			pl.fault("distribution", a, fmt.Sprint(want), fmt.Sprint(count[a]))
		}
	}
}

// conversation plays messages that were recorded one by one, and compares the answers and whether the picker ended
// the stream.
func (pl *player) conversation(s *Step) {
	x := &exchange{id: s.Conversation, conn: pl.connect(), request: &Request{Headers: map[string]string{}}}
	for _, m := range s.Sent {
		sent := conversational(m)
		if sent.Kind == stream.Headers {
			for _, h := range sent.Head {
				x.request.Headers[h.Name] = h.Value
			}
		}
		x.conn.send(sent, nil)
	}
	var want []Message
	_ = json.Unmarshal(s.Observed, &want)
	ends := len(want) > 0 && want[len(want)-1].Type == "stream_end"
	over := false
	pl.await(func() bool {
		over = x.hear()
		return over || !ends && len(x.inbox) >= len(want)-1
	})
	x.conn.leave()
	x.hear() // surplus messages
	ended := Message{Type: "nothing more (stream open)"}
	if over {
		ended.Type = "stream_end"
	}
	pl.response(x, want, append(x.inbox, ended))
}

// conversational converts a recorded message: ["request_body", [text, end]].
func conversational(recorded [2]json.RawMessage) *stream.Message {
	var kind, text string
	var parts [2]json.RawMessage
	m := &stream.Message{}
	_ = json.Unmarshal(recorded[0], &kind)
	if json.Unmarshal(recorded[1], &parts) == nil {
		m.Head = inOrder(parts[0])
		_ = json.Unmarshal(parts[0], &text)
		_ = json.Unmarshal(parts[1], &m.End)
	}
	m.Kind = map[string]stream.MessageKind{"request_headers": stream.Headers, "request_body": stream.Body,
		"request_trailers": stream.Trailers,
		"response_headers": stream.ResponseHeaders, "response_body": stream.ResponseBody,
		"response_trailers": stream.ResponseTrailers}[kind]
	m.Body = []byte(text)
	return m
}

// inOrder returns an object's headers in order. If a name occurs twice, in different cases, the last one counts.
func inOrder(object json.RawMessage) (list header.List) {
	d := json.NewDecoder(bytes.NewReader(object))
	for t, err := d.Token(); t == json.Delim('{') && err == nil && d.More(); {
		var name json.Token
		var value string
		if name, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		list = append(list, header.Header{Name: fmt.Sprint(name), Value: value})
	}
	return list
}
