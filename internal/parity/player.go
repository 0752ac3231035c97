package parity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/discovery"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/objects"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
)

// tolerance of scores.
const tolerance = 1e-6

// player plays one line against a picker, in virtual time.
type player struct {
	line    *Line
	p       *picker.Picker
	fc      *flowcontrol.Controller
	fx      flowcontrol.Effects
	playing bool // effects are being carried out
	now     machine.Time
	pages   map[string]string // worker -> page
	failing map[string]bool
	open    map[string]*exchange
	byID    map[flowcontrol.RequestID]*exchange
	order   []string // of first answers
	number  uint64
	random  bool
	noHit   bool
	weight  float64 // of no-hit-lru-scorer
	force   atomic.Pointer[exchange]
	faults  []Fault

	cluster *cluster
	worker  map[string]string // of a cluster: page by "ip:port"
	evicted map[string]bool   // recorded as evicted so far
	told    map[string]bool   // recorded as answered so far
	changed machine.Time      // when an object changed last

	door door // nil: the picker is called directly
	// queues says that flow control is behind the door; asked are the requests
	// that have no answer yet, known all of them by their request ids.
	queues    bool
	asked     []*exchange
	known     sync.Map
	evictions int  // heard of so far
	stuck     bool // something that was due never happened

	crewed bool // see ceilings
	from   int  // where in order the present state of a ceiling run begins
	fine   bool // time goes by the dispatch interval even while nothing comes
}

// door is another way to the same picker: its gRPC port.
type door interface {
	// alone runs f while nothing else uses the picker.
	alone(now machine.Time, f func())
	request(now machine.Time, rq *Request) (opened any, got []Message)
	// respond sends what is not nil or empty of a response; end is whether the
	// last piece is the response's last. It returns what came back, if wanted.
	respond(now machine.Time, opened any, headers map[string]string, chunks []string, end, wanted bool) []Message
	leave(now machine.Time, opened any)
	conversation(now machine.Time, sent [][2]json.RawMessage) []Message
	figures(now machine.Time, pattern string) map[string]float64
	page(now machine.Time, path string) (status int, body []byte)
	apply(now machine.Time, s objects.Selection)
	// ask sends a request whose answer may take its time: heard is what came
	// since. queued is how many flow control holds, evicted how many it ended,
	// left whether it knows of all that left.
	ask(now machine.Time, rq *Request) (opened any)
	heard(opened any) (got []Message, over bool)
	flow() (queued, evicted int, left bool)
}

// alone runs f while nothing else uses the picker.
func (pl *player) alone(f func()) {
	if pl.door == nil {
		f()
		return
	}
	pl.door.alone(pl.now, f)
}

// Fault is one difference.
type Fault struct{ Unit, Field, Recorded, Got string }

// exchange is one request under way.
type exchange struct {
	id       string
	step     *Step
	recorded Observed
	fcID     flowcontrol.RequestID
	arrived  machine.Time
	answered machine.Time
	req      *picker.Request
	d        *picker.Decision
	resp     *picker.Response
	refusal  *flowcontrol.Refusal
	evicted  *flowcontrol.Refusal
	err      *picker.Error
	done     bool // has an answer
	closed   bool

	opened  any       // of a door
	got     []Message // through a door
	asked   *Request  // of a door with flow control
	later   []Message // what came there behind the answer
	started bool      // the response's headers went through a door
}

// Build makes the picker of a recorded configuration.
func Build(l *Line, force func(c *picker.Cycle, profile string, candidates []int32) []int32) (*picker.Picker, *flowcontrol.Controller, error) {
	cfg := config.Default()
	if l.Config != "" || l.Objects == nil {
		var err error
		if cfg, err = config.Read([]byte(l.Config)); err != nil {
			return nil, nil, err
		}
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{
		AllowExperimental: slices.Contains(l.Flags, "--allow-experimental-plugins"), Detail: true, Force: force,
		Stopwatch: func() machine.Time { return 0 }})
	if err != nil {
		return nil, nil, err
	}
	if cfg.DiscoveryRef() == "" && l.Objects == nil {
		return nil, nil, fmt.Errorf("no endpoint discovery is configured")
	}
	fcfg, err := plugins.FlowControl(p)
	if err != nil || !p.FlowControl() {
		if p.FlowControl() || cfg.FlowControl == nil {
			return p, nil, err
		}
		return p, nil, nil
	}
	c, err := flowcontrol.NewController(fcfg)
	return p, c, err
}

// Play plays a line and returns its differences.
func Play(l *Line) []Fault { return play(l, nil) }

// play plays through a door that open makes, if it is not nil.
func play(l *Line, open func(p *picker.Picker) (door, error)) []Fault {
	pl := &player{line: l, pages: map[string]string{}, failing: map[string]bool{}, open: map[string]*exchange{}, byID: map[flowcontrol.RequestID]*exchange{}}
	pl.random = strings.Contains(l.Config, "random-picker")
	if i := strings.Index(l.Config, "pluginRef: no-hit-lru-scorer"); i >= 0 {
		pl.noHit, pl.weight = true, 1
		if _, err := fmt.Sscanf(l.Config[i:], "pluginRef: no-hit-lru-scorer, weight: %f", &pl.weight); err != nil {
			pl.weight = 1
		}
	}
	p, fc, err := Build(l, pl.choose)
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
	pl.p, pl.fc = p, fc
	if open != nil {
		if pl.door, err = open(p); err != nil {
			pl.fault("start", "server", "", err.Error())
			return pl.faults
		}
		pl.queues, pl.fc = fc != nil, nil // it has one of its own
	}
	if l.Objects != nil {
		if err := pl.startCluster(); err != nil {
			pl.fault("start", "objects", "", err.Error())
			return pl.faults
		}
	} else {
		pl.endpoints(l.Endpoints)
	}
	for _, e := range l.Endpoints {
		m := Metrics{Waiting: 0.0, Running: 0.0, KV: 0.0}
		if im, ok := l.InitialMetrics[e.Name]; ok {
			m = im
		}
		if !e.NotListening {
			pl.pages[e.Name] = m.Page()
		}
	}
	pl.advance(machine.Second)
	for i := range l.Steps {
		pl.step(i)
	}
	return pl.faults
}

func (pl *player) fault(unit, field, recorded, got string) {
	pl.faults = append(pl.faults, Fault{unit, field, recorded, got})
}

func (pl *player) endpoints(list []Endpoint) {
	var out []*picker.Endpoint
	for _, e := range list {
		ns := e.Namespace
		if ns == "" {
			ns = discovery.DefaultNamespace
		}
		out = append(out, picker.NewEndpoint(ns, e.Name, e.Address, fmt.Sprint(e.Port), e.Labels))
	}
	pl.alone(func() { pl.p.Pool().Set(out) })
}

// pageOf names the page of an endpoint.
func (pl *player) pageOf(s *picker.State) string {
	if pl.worker != nil {
		return pl.worker[s.HostPort()]
	}
	return s.Name
}

// scrape reads every page that answers, as the real one does every 50 ms.
func (pl *player) scrape() { pl.alone(pl.scrapeAll) }

func (pl *player) scrapeAll() {
	pool := pl.p.Pool()
	v := pool.View()
	var indexes []int
	for i := range v.States {
		name := pl.pageOf(&v.States[i])
		if _, listening := pl.pages[name]; listening && !pl.failing[name] {
			indexes = append(indexes, i)
		}
	}
	ex := pl.p.Scrapes()[0].Extractors
	for _, i := range indexes {
		s := v.States[i]
		m := s.Metrics
		if ex[0].Extract([]byte(pl.pages[pl.pageOf(&s)]), s.Labels, &m) == nil {
			pool.Update(pl.now, []int{i}, func(_ int, s *picker.State) { s.Metrics = m })
		}
	}
	pl.loads()
}

// advance lets time pass, with a scrape every 50 ms.
func (pl *player) advance(by machine.Time) {
	until := pl.now + by
	for pl.now < until {
		if pl.queues {
			pl.pass(until)
			continue
		}
		pl.now = min(until, pl.now+50*machine.Millisecond)
		pl.flow()
		pl.scrape()
	}
}

func (pl *player) answer(x *exchange, at machine.Time) {
	x.done, x.answered = true, at
	pl.order = append(pl.order, x.id)
	if x.refusal != nil || x.d != nil || x.err != nil {
		pl.compare(x)
	}
}

func (pl *player) decide(x *exchange) {
	pl.force.Store(x)
	x.d = pl.p.Pick(pl.now, x.req, pl.p.Pool().View(), nil, nil)
	pl.force.Store(nil)
	x.err = x.d.Err
	if x.err == nil {
		pl.p.Commit(pl.now, x.d)
	}
}

func (pl *player) step(i int) {
	s := &pl.line.Steps[i]
	if pl.cluster != nil && pl.clusterStep(s) {
		return
	}
	switch {
	case s.Request != nil:
		pl.request(s)
	case s.Finish != "":
		play := Reply{Usage: s.Usage, Headers: s.ResponseHeaders, Chunks: s.ResponseChunks}
		_ = json.Unmarshal(s.Response, &play.Kind)
		pl.finish(s.Finish, play, s.ResponseSeen)
		pl.advance(100 * machine.Millisecond)
	case s.Metrics != nil || s.MetricsRaw != nil:
		for name, m := range s.Metrics {
			pl.pages[name] = m.Page()
		}
		for name, text := range s.MetricsRaw {
			pl.pages[name] = text
		}
		pl.advance(300 * machine.Millisecond)
	case s.ScrapeFail != nil || s.ScrapeOK != nil:
		for _, name := range s.ScrapeFail {
			pl.failing[name] = true
		}
		for _, name := range s.ScrapeOK {
			delete(pl.failing, name)
		}
		pl.advance(500 * machine.Millisecond)
	case s.SleepS > 0:
		pl.advance(machine.Time(s.SleepS * float64(machine.Second)))
	case s.HeadersSent != "":
		if x := pl.open[s.HeadersSent]; x != nil {
			ct := s.ContentType
			if ct == "" {
				ct = "text/event-stream"
			}
			pl.respondHead(x, ct)
		}
		pl.advance(150 * machine.Millisecond)
	case s.ChunkSent != "" || s.EOSSent != "":
		id, chunk := s.ChunkSent, s.Chunk
		if id == "" {
			id, chunk = s.EOSSent, "data: [DONE]\n\n"
		}
		if x := pl.open[id]; x != nil {
			if x.resp == nil && !x.started {
				pl.respondHead(x, "application/json")
			}
			end := s.EOS || s.EOSSent != ""
			if pl.door != nil {
				pl.door.respond(pl.now, x.opened, nil, []string{chunk}, end, false)
			} else {
				x.resp.Body(pl.now, []byte(chunk), end)
			}
			if end {
				pl.release(x)
			}
		}
		pl.advance(150 * machine.Millisecond)
	case s.EndpointsNow != nil:
		pl.endpoints(s.EndpointsNow)
		for _, e := range s.EndpointsNow {
			if _, ok := pl.pages[e.Name]; !ok {
				m := Metrics{Waiting: 0.0, Running: 0.0, KV: 0.0}
				pl.pages[e.Name] = m.Page()
			}
		}
		pl.loads()
		pl.advance(800 * machine.Millisecond)
	case s.EndpointsRaw != nil:
		if list, err := discovery.Read([]byte(*s.EndpointsRaw), ""); err == nil {
			pl.alone(func() { pl.p.Pool().Set(list) })
			pl.loads()
		}
		pl.advance(700 * machine.Millisecond)
	case s.Cancels != "":
		if x := pl.open[s.Cancels]; x != nil {
			pl.release(x)
		}
		pl.advance(200 * machine.Millisecond)
	case s.Distribution != nil:
		pl.distribution(s)
	case s.Conversation != "":
		if pl.door != nil {
			pl.response(&exchange{id: s.Conversation}, pl.observed(s), pl.door.conversation(pl.now, s.Sent))
		}
	default:
		pl.flowStep(s)
	}
}

func (pl *player) observed(s *Step) (list []Message) {
	_ = json.Unmarshal(s.Observed, &list)
	return list
}

func (pl *player) request(s *Step) {
	rq := s.Request
	x := &exchange{id: rq.ID, step: s, arrived: pl.now}
	_ = json.Unmarshal(s.Observed, &x.recorded)
	pl.send(x, rq)
	if s.Blocked != nil {
		var wait *float64
		_ = json.Unmarshal(s.Blocked, &wait)
		d := .15
		if wait != nil && *wait > 0 {
			d = *wait
		}
		pl.advance(machine.Time(d * float64(machine.Second)))
		if x.done == (wait != nil) {
			pl.fault(x.id, "blocked", fmt.Sprint(wait != nil), fmt.Sprint(!x.done))
		}
	} else if pl.fc != nil || pl.queues {
		pl.advance(11 * machine.Millisecond) // 15 in all between two requests
	}
	if !s.Hold {
		if !x.done {
			for n := 0; n < 2000 && !x.done; n++ {
				pl.advance(10 * machine.Millisecond)
			}
		}
		pl.finish(rq.ID, pl.playOf(s), s.ResponseSeen)
	}
}

// send brings a request to its decision, or into flow control.
func (pl *player) send(x *exchange, rq *Request) {
	pl.open[rq.ID] = x
	if pl.door != nil {
		pl.now += 2 * machine.Millisecond
		pl.scrape()
		x.arrived = pl.now
		if pl.queues {
			pl.ask(x, rq)
			return
		}
		pl.force.Store(x)
		x.opened, x.got = pl.door.request(pl.now, rq)
		pl.force.Store(nil)
		x.done, x.answered = true, pl.now
		pl.order = append(pl.order, x.id)
		pl.compareMessages(x, rq)
		return
	}
	headers := append(header.Of(":method", rq.Method, ":path", rq.Path), header.FromMap(rq.Headers)...)
	var body []byte
	if rq.Body != nil {
		body = []byte(*rq.Body)
	}
	pl.number++
	x.req, x.err = pl.p.NewRequest(headers, body, rq.Body != nil, pl.number)
	if rq.Body != nil && rq.MetadataOn != "headers" {
		if list, ok := rq.Metadata[picker.NamespaceSubset][picker.KeySubset].([]any); ok {
			x.req.HasSubset = true
			for _, v := range list {
				if t, ok := v.(string); ok {
					x.req.Subset = append(x.req.Subset, t)
				}
			}
		}
	}
	pl.now += 2 * machine.Millisecond
	pl.scrape()
	x.arrived = pl.now
	if x.err == nil {
		_, x.err = pl.p.Prepare(pl.now, x.req)
	}
	switch {
	case x.err != nil:
		pl.answer(x, pl.now)
	case pl.fc != nil && x.req.Body != nil:
		pl.number++
		x.fcID = flowcontrol.RequestID(pl.number)
		pl.byID[x.fcID] = x
		pl.fc.Input(pl.now, flowcontrol.Arrive{ID: x.fcID, Priority: x.req.Objective.Priority, FairnessID: x.req.FairnessID,
			Bytes: int64(x.req.SizeBytes), Tokens: int64(x.req.Tokens), TTFT: machine.Time(x.req.TTFTMs * 1e6)}, &pl.fx)
		pl.advance(2 * machine.Millisecond)
	default:
		pl.decide(x)
		pl.answer(x, pl.now)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func pairs(set header.List) [][2]string {
	out := make([][2]string, 0, len(set))
	for _, h := range set {
		out = append(out, [2]string{h.Name, h.Value})
	}
	sort.Slice(out, func(i, j int) bool { return out[i][0] < out[j][0] })
	return out
}

func (pl *player) distribution(s *Step) {
	count := map[string]int{}
	body := string(s.Template)
	for i := range s.Requests {
		id := fmt.Sprintf("d%d", i)
		x := &exchange{id: id}
		pl.send(x, &Request{ID: id, Method: "POST", Path: "/v1/chat/completions", Headers: map[string]string{"x-request-id": id}, Body: &body})
		count[pl.destination(x)]++
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

// destination is where a request went, "" when it was refused.
func (pl *player) destination(x *exchange) string {
	if pl.door == nil {
		if x.d == nil || x.err != nil {
			return ""
		}
		return x.d.Destination()
	}
	for i := range x.got {
		if x.got[i].Type == "request_headers" {
			dest, _ := x.got[i].lb()
			return dest
		}
	}
	return ""
}
