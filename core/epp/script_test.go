package epp_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// The scripts under testdata show the lives of requests, scrapes and KV events. A command is an input from outside;
// below the line stand all effects of the machine and the streams, with the time at which each was due.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			s.out.Reset()
			if d.HasArg("at") {
				s.now = s.span(s.arg(d, "at", ""))
			}
			s.command(d)
			if s.log != nil {
				s.log.Start() // a player begins here
			}
			return s.out.String()
		})
		s.replay()
	})
}

// replay plays the script's messages into another machine, which must answer the same.
func (s *script) replay() {
	if s.log == nil {
		return
	}
	quiet := &script{t: s.t}
	same := &inputlog.Other{Config: s.text, Name: "the same configuration"}
	var moves inputlog.Moves
	same.Look = func(r *epp.Request, own *picker.Decision) { moves.Look(r, own) }
	p := inputlog.Player{Registry: quiet.registry(), CheckStates: true, Others: []*inputlog.Other{same}}
	for line := range bytes.Lines(s.logged.Bytes()) {
		if err := p.Line(bytes.TrimSpace(line)); err != nil {
			s.t.Fatalf("%v\n%.2000s", err, line)
		}
	}
	if p.First != nil || p.Skipped > 0 {
		s.t.Errorf("played again: %v\n%+v", p.First, p.Counts)
	}
	if moves.Moved+moves.Prefill+moves.Refused+moves.Admitted > 0 || len(same.Notes) > 0 {
		s.t.Errorf("asked about each decision, the same configuration says another one: %+v %v %v", moves,
			moves.Reasons(), same.Notes)
	}
	for _, x := range moves.Scores() {
		if x.Largest > 0 {
			s.t.Errorf("and other scores: %+v", x)
		}
	}
}

// script is a driver that writes down every effect. Decisions go to their
// streams; for all else the machine waits until the script brings it.
type script struct {
	t       *testing.T
	m       *epp.Machine
	now     machine.Time
	fx      epp.Effects
	playing bool
	out     strings.Builder
	conns   map[string]*conn
	names   []string // of conns, in their order
	scrapes map[string]epp.Effect
	done    map[*epp.Request]bool
	log     *inputlog.Log
	logged  bytes.Buffer
	text    string // its configuration
}

// conn is Envoy's side of a stream.
type conn struct {
	s    *script
	name string
	x    *epp.Stream
	fx   machine.Effects[stream.Effect]
	head header.List // that was sent last
	late bool        // the request is held back on its way to the machine
}

func (s *script) arg(d *datadriven.TestData, key, otherwise string) string {
	if d.HasArg(key) {
		d.ScanArgs(s.t, key, &otherwise)
	}
	return otherwise
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) span(text string) machine.Time {
	v, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return machine.FromDuration(v)
}

func (s *script) say(at machine.Time, format string, args ...any) {
	fmt.Fprintf(&s.out, "%v %s\n", at, fmt.Sprintf(format, args...))
}

func (s *script) command(d *datadriven.TestData) {
	name := ""
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		name = d.CmdArgs[0].Key
	}
	c := s.conns[name]
	switch d.Cmd {
	case "config":
		s.config(d)
	case "endpoints":
		s.Input(epp.Endpoints{List: s.endpoints(d.Input)})
	case "objects":
		s.objects(d)
	case "advance":
		s.advance(s.now + s.span(name))
	case "page", "failed":
		s.scraped(d, name)
	case "request":
		s.request(d, name)
	case "arrive":
		c.arrive()
	case "answer":
		s.answer(c, d)
	case "leave":
		s.Input(epp.Leave{Request: c.x.Request()})
	case "evict":
		c.x.Evict(s.now, &c.fx)
		c.play()
	case "gone":
		c.send(stream.Message{Kind: stream.PeerGone})
	case "response":
		c.head = header.Of(":status", s.arg(d, "status", "200"), "content-type", s.arg(d, "type", "application/json"),
			"content-length", "13")
		c.send(stream.Message{Kind: stream.ResponseHeaders, Head: c.head, End: d.HasArg("end")})
	case "body":
		body := []byte(d.Input)
		if d.HasArg("size") {
			body = bytes.Repeat([]byte("x"), s.number(s.arg(d, "size", "")))
		}
		c.send(stream.Message{Kind: stream.ResponseBody, Body: body, End: d.HasArg("end")})
	case "trailers":
		c.send(stream.Message{Kind: stream.ResponseTrailers})
	case "events":
		s.events(d, name)
	case "lost":
		s.Input(epp.KVLost{Pod: name})
	case "lose-indexes":
		s.Input(epp.LoseIndexes{})
	case "shutdown":
		s.Input(epp.Shutdown{})
	case "state":
		s.state()
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (s *script) config(d *datadriven.TestData) {
	s.replay()
	*s = script{t: s.t, conns: map[string]*conn{}, scrapes: map[string]epp.Effect{}, done: map[*epp.Request]bool{}}
	cfg, err := config.Read("epp.yaml", []byte(d.Input))
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := picker.New(cfg, s.registry(), picker.Options{Detail: true, AllowExperimental: true,
		Panicked: func(err *apierror.Error) { s.say(s.now, "%s", err.Message) }})
	if err != nil {
		s.t.Fatal(err)
	}
	c := epp.Config{Picker: p, EmitScores: d.HasArg("scores"), DocumentHeaders: d.HasArg("document-headers"),
		ExplainHeaders: d.HasArg("explain-headers"),
		Stream:         stream.Config{Errors: stream.EPPErrors, Deadline: s.span(s.arg(d, "deadline", "0s"))}}
	c.History, c.Replica, c.Replicas = s.number(s.arg(d, "history", "0")), s.number(s.arg(d, "replica", "0")),
		s.number(s.arg(d, "replicas", "1"))
	if s.m, err = epp.New(c); err != nil {
		fmt.Fprintln(&s.out, "error:", err)
		return
	}
	s.text = d.Input
	s.log = inputlog.New(s.m, inputlog.Header{Picker: 1, Config: &s.text, Detail: true, AllowExperimental: true},
		func(lines []byte) { s.logged.Write(lines) })
	s.log.Start()
}

// registry has one more plug-in.
func (s *script) registry() picker.Registry {
	reg := plugins.Builtin()
	reg["faulty"] = picker.Registration{
		New: func(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
			return &faulty{picker.Base{}, s}, nil
		}}
	reg["faulty-source"] = picker.Registration{
		New: func(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
			return &faultySource{}, nil
		}}
	return reg
}

// endpoints are lines of name, address:port and labels.
func (s *script) endpoints(text string) (list []*picker.Endpoint) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		host, port, _ := strings.Cut(f[1], ":")
		labels := map[string]string{}
		for _, l := range f[2:] {
			k, v, _ := strings.Cut(l, "=")
			labels[k] = v
		}
		list = append(list, picker.NewEndpoint("default", f[0], host, port, labels))
	}
	return list
}

func (s *script) objects(d *datadriven.TestData) {
	set := &objects.Set{DefaultNamespace: "default"}
	if err := set.Add("objects.yaml", []byte(d.Input)); err != nil {
		s.t.Fatal(err)
	}
	s.Input(epp.Objects{Selection: set.Select("default", "pool"), KeepEndpoints: d.HasArg("keep-endpoints")})
}

// Input implements epp.Door. Done is said once, and nothing after it.
func (s *script) Input(m epp.Message) {
	var r *epp.Request
	switch x := m.(type) {
	case epp.Headers:
		r = x.Request
	case epp.Piece:
		r = x.Request
	case epp.Done:
		defer func() { s.done[x.Request] = true }()
		r = x.Request
	}
	if s.done[r] {
		s.t.Errorf("%T after Done", m)
	}
	s.m.Input(s.now, m, &s.fx)
	s.play()
}

// advance goes from one moment to the next at which the machine or a stream
// wants to be woken.
func (s *script) advance(until machine.Time) {
	for s.now < until {
		next := until
		if at, ok := s.m.Next(); ok {
			next = min(next, at)
		}
		for _, name := range s.names {
			if at, ok := s.conns[name].x.Next(); ok {
				next = min(next, at)
			}
		}
		s.now = next
		s.m.Advance(next, &s.fx)
		s.play()
		for _, name := range s.names {
			c := s.conns[name]
			c.x.Advance(next, &c.fx)
			c.play()
		}
	}
}

func (s *script) play() {
	if s.playing {
		return
	}
	s.playing = true
	for i := 0; i < len(s.fx.List); i++ {
		e := s.fx.List[i]
		s.effect(&e)
	}
	s.fx.Reset()
	s.playing = false
}

func (s *script) effect(e *epp.Effect) {
	var c *conn
	if e.Request != nil {
		c, _ = e.Request.Owner.(*conn)
	}
	source, target := "", ""
	if e.Target != nil {
		target = e.Target.Name
	}
	switch e.Kind {
	case epp.Scrape, epp.Unread, epp.Forgotten:
		source = s.m.Sources()[e.Source].Source.Name()
	}
	switch e.Kind {
	case epp.Ask:
		for _, n := range e.Request.Needs {
			s.say(e.At, "%s: %s asks %s %s for %s", c.name, n.Plugin, n.Method, n.URL, n.Key)
			if n.Key == dataproducer.KeyRender {
				body, err := n.Body()
				s.say(e.At, "%s: with %s%s", c.name, body, orNothing(err))
			}
		}
	case epp.Decided:
		switch r := e.Request; {
		case r.Err != nil:
			s.say(e.At, "%s: refused", c.name)
		case r.Evictable():
			s.say(e.At, "%s: decided, and may be evicted", c.name)
		default:
			s.say(e.At, "%s: decided", c.name)
		}
		c.x.Decide(s.now, &c.fx)
		c.play()
	case epp.Evict:
		s.say(e.At, "%s: to be evicted", c.name)
		c.x.Evict(s.now, &c.fx)
		c.play()
	case epp.Failed:
		s.say(e.At, "%s: failed when it was over: %s", c.name, e.Request.Err.Message)
	case epp.Scrape:
		s.scrapes[target+" "+source] = *e
		s.say(e.At, "scrape %s for %s", s.m.Sources()[e.Source].Address(e.Target)+s.m.Sources()[e.Source].Path, source)
	case epp.Departed:
		s.say(e.At, "%s at %s has left", target, e.Target.HostPort())
	case epp.Unread:
		s.say(e.At, "%s of %s: %s cannot read it: %v", source, target, e.Plugin.Name(), e.Err)
	case epp.Forgotten:
		s.say(e.At, "%s of %s: forgotten", source, target)
	case epp.Dial:
		s.say(e.At, "dial %s at %s", target, e.Target.HostPort())
	case epp.Hangup:
		s.say(e.At, "hang up %s at %s", target, e.Target.HostPort())
	case epp.Mismatch:
		s.say(e.At, "%s has blocks of %d tokens", target, e.Count)
	case epp.Queued:
		s.say(e.At, "%s: queued", c.name)
	case epp.Left:
		s.say(e.At, "%s: %s", c.name, e.Flow.Admission())
	case epp.Revoked:
		s.say(e.At, "eviction %s, %v",
			map[flowcontrol.EffectKind]string{flowcontrol.Evict: "begun", flowcontrol.RevocationConfirmed: "confirmed",
				flowcontrol.RevocationTimedOut: "timed out"}[e.Flow.Kind], e.Flow.Wait)
	}
}

// scraped answers a scrape that is out: lines of gauges, or why there are none.
func (s *script) scraped(d *datadriven.TestData, target string) {
	var e epp.Effect
	found := 0
	for key, x := range s.scrapes {
		if name, source, _ := strings.Cut(key, " "); name == target &&
			strings.HasPrefix(source, s.arg(d, "source", "")) {
			e = x
			delete(s.scrapes, key)
			found++
		}
	}
	if found != 1 {
		s.t.Fatalf("%s: %d scrapes of %s are out", d.Pos, found, target)
	}
	msg := epp.Scraped{Target: e.Target, Source: e.Source}
	if d.Cmd == "failed" {
		msg.Err = errors.New(strings.TrimSpace(d.Input))
	} else {
		var page strings.Builder
		for line := range strings.Lines(d.Input) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			fmt.Fprintf(&page, "# TYPE %s gauge\n%s %s\n", name, name, value)
		}
		msg.Page, msg.Err = metrics.Parse([]byte(page.String()), s.m.Sources()[e.Source].Wants)
	}
	s.Input(msg)
}

// request sends a request, whole unless it is unfinished. With late, the machine does not get it yet.
func (s *script) request(d *datadriven.TestData, name string) {
	c := &conn{s: s, name: name, x: epp.NewStream(s.m, s, uint64(len(s.names)+1)), late: d.HasArg("late")}
	s.conns[name], s.names = c, append(s.names, name)
	c.head = header.Of(":method", "POST", ":path", s.arg(d, "path", "/v1/completions"), "x-request-id", name)
	for _, a := range d.CmdArgs {
		if len(a.Vals) > 0 && (strings.HasPrefix(a.Key, "x-") || a.Key == "traceparent") {
			c.head = append(c.head, header.Header{Name: a.Key, Value: a.Vals[0]})
		}
	}
	c.head = c.head.Normalize()
	modes := stream.Modes{}
	if d.HasArg("buffered") {
		modes = stream.Modes{Request: stream.Buffered, Response: stream.Buffered}
	}
	body := d.Input
	if body == "" {
		body = `{"model":"m","prompt":"Hello"}`
	}
	bodyless := d.HasArg("bodyless")
	c.send(stream.Message{Kind: stream.Headers, Modes: modes, Head: c.head, End: bodyless})
	if hint := s.arg(d, "subset", ""); hint != "" {
		c.x.Subset([]string{hint}, true)
	}
	if !bodyless && !d.HasArg("unfinished") {
		c.send(stream.Message{Kind: stream.Body, Body: []byte(body), End: true})
	}
}

func (s *script) answer(c *conn, d *datadriven.TestData) {
	r := c.x.Request()
	var answers []picker.Answer
	for _, n := range r.Needs {
		a := picker.Answer{Plugin: n.Plugin, Key: n.Key, Value: []byte(d.Input)}
		if d.HasArg("error") {
			a = picker.Answer{Plugin: n.Plugin, Key: n.Key, Err: errors.New(d.Input)}
		}
		answers = append(answers, a)
	}
	s.Input(s.m.Answer(r, answers))
}

// events are lines of kind, hash and, of stored blocks, tokens. None are a sign
// of life.
func (s *script) events(d *datadriven.TestData, pod string) {
	msg := epp.KVEvents{From: kv.Topic{Pod: pod, Model: "m"}}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		e := kv.Event{Kind: kv.Stored, Medium: kv.MediumGPU, Group: kv.NoGroup,
			BlockTokens: s.number(s.arg(d, "block", "4"))}
		if f[0] == "removed" {
			e.Kind, e.BlockTokens = kv.Removed, 0
		}
		for hash := range strings.SplitSeq(f[1], ",") {
			e.Hashes = append(e.Hashes, kv.EngineHash(s.number(hash)))
		}
		for _, token := range f[2:] {
			e.Tokens = append(e.Tokens, uint32(s.number(token)))
		}
		e.Pod = s.arg(d, "pod", "")
		msg.Events = append(msg.Events, e)
	}
	s.Input(msg)
}

func (s *script) state() {
	if at, ok := s.m.Next(); ok {
		fmt.Fprintf(&s.out, "next %v\n", at)
	}
	if n := s.m.Scraping(); n > 0 {
		fmt.Fprintf(&s.out, "%d scrapes are out\n", n)
	}
	if fc := s.m.FlowControl(); fc != nil {
		x := fc.Snapshot(s.now)
		fmt.Fprintf(&s.out, "%d requests of %d bytes wait, %d in all, saturation %.3g, priorities", x.Queued,
			x.QueuedBytes, s.m.InFlight(), x.Saturation)
		for _, b := range x.Bands {
			fmt.Fprintf(&s.out, " %d", b.Priority)
		}
		fmt.Fprintln(&s.out)
	}
	for _, d := range s.m.History() {
		fmt.Fprintf(&s.out, "remembered: %s to %q\n", d.Request.ID, d.Destination())
	}
	for i := range s.m.Picker().Pool().View().States {
		x := &s.m.Picker().Pool().View().States[i]
		fmt.Fprintf(&s.out, "%s waiting %d running %d kv %.2g", x.Name, x.Waiting, x.Running, x.KVUsage)
		if x.Scraped {
			fmt.Fprintf(&s.out, ", as of %v", x.UpdatedAt)
		}
		fmt.Fprintln(&s.out)
	}
	for i := range s.m.Indexes() {
		for _, pod := range s.m.KV(i).PodNames() {
			x, _ := s.m.KV(i).Pod(pod)
			fmt.Fprintf(&s.out, "%s holds %d blocks\n", pod, x.Blocks)
		}
	}
}

func (c *conn) send(m stream.Message) {
	c.x.Input(c.s.now, &m, &c.fx)
	c.play()
}

func (c *conn) arrive() {
	c.late = false
	c.x.Request().Owner = c
	c.s.Input(epp.Arrive{Request: c.x.Request()})
}

func (c *conn) play() {
	effects := slices.Clone(c.fx.List)
	c.fx.Reset()
	for i := range effects {
		e := &effects[i]
		if e.Kind != stream.Decide {
			c.s.say(e.At, "%s: %s", c.name, c.words(e))
		} else if !c.late {
			c.arrive()
		}
	}
}

// words describes an effect, without the headers that pass unchanged.
func (c *conn) words(e *stream.Effect) string {
	var b strings.Builder
	b.WriteString([]string{"decide", "continue", "request headers", "request body", "request trailers",
		"response headers", "response body", "response trailers", "answer", "fail"}[e.Kind])
	set := e.Set
	if e.Kind == stream.SendAnswer {
		fmt.Fprintf(&b, " %d %s", e.Answer.Status, e.Answer.Body)
		set = e.Answer.Set
	}
	for _, h := range set {
		if was, there := c.head.Lookup(h.Name); !there || was != h.Value {
			if h.Name != "Content-Length" && h.Name != picker.HeaderWentResponse {
				fmt.Fprintf(&b, " %s=%s", h.Name, h.Value)
			}
		}
	}
	if len(e.Remove) > 0 {
		fmt.Fprintf(&b, " without %v", e.Remove)
	}
	switch n := len(e.Body); {
	case n > 200:
		fmt.Fprintf(&b, " %d bytes", n)
	case n > 0:
		fmt.Fprintf(&b, " %q", e.Body)
	}
	if e.Replace {
		b.WriteString(" replaces it")
	}
	if e.End {
		b.WriteString(" end")
	}
	if e.Reason != "" {
		b.WriteString(" " + e.Reason)
	}
	if scores, ok := e.Metadata[picker.NamespaceLB][picker.KeyScores]; ok {
		fmt.Fprintf(&b, " scores %v", scores)
	}
	return b.String()
}

// faulty is a plug-in that reports when a request acquires and releases something of it, and that panics or spoils its
// Body where a request's header x-panic names.
type faulty struct {
	picker.Base
	s *script
}

func (f *faulty) panics(r *picker.Request, at string) {
	if r.Headers.Get("x-panic") == at {
		panic("at " + at)
	}
}

func (f *faulty) Wants(family string) bool { return family == "x_error" || family == "x_panic" }

func (f *faulty) Forget(*picker.Metrics) { panic("at Forget") }

func (f *faulty) Extract(page metrics.Page, _ map[string]string, _ *picker.Metrics) error {
	switch {
	case page["x_panic"] != nil:
		panic("at Extract")
	case page["x_error"] != nil:
		return errors.New("nonsense")
	}
	return nil
}

func (f *faulty) RequestHeader(r *picker.Request) {
	f.panics(r, "RequestHeader")
	if r.Headers.Get("x-panic") == "Body" {
		r.Body.Forget()
	}
}

func (f *faulty) Needs(_ machine.Time, r *picker.Request, _ *picker.View) []picker.Need {
	f.panics(r, "Needs")
	return nil
}

func (f *faulty) Score(c *picker.Cycle, _ []int32, _ []float64) { f.panics(c.Request, "Score") }

func (f *faulty) Commit(now machine.Time, d *picker.Decision) {
	f.s.say(now, "%s takes %s", f.Name(), d.Request.ID)
	f.panics(d.Request, "Commit")
}

func (f *faulty) Release(now machine.Time, d *picker.Decision) {
	f.s.say(now, "%s gives back %s", f.Name(), d.Request.ID)
	f.panics(d.Request, "Release")
}

func (f *faulty) ResponseHeader(_ machine.Time, r *picker.Response) {
	f.panics(r.Decision.Request, "ResponseHeader")
}

func (f *faulty) ResponseBody(_ machine.Time, r *picker.Response) {
	f.panics(r.Decision.Request, "ResponseBody")
	if r.End {
		f.panics(r.Decision.Request, "ResponseEnd")
	}
}

// faultySource is a data source that panics over a scrape that failed so.
type faultySource struct{ picker.Base }

func (f *faultySource) Scrape() picker.ScrapeSpec {
	return picker.ScrapeSpec{Scheme: "http", Path: "/faulty", Interval: machine.Second, TTL: 1500 * machine.Millisecond}
}

func (f *faultySource) Probed(_ int, err error) {
	if err != nil && err.Error() == "panic" {
		panic("at Probed")
	}
}

// A later decision does not overwrite one that is still held, even when the machine no longer remembers it.
func TestHeldDecisionsStay(t *testing.T) {
	s := &script{t: t}
	run := func(cmd, input string, args ...string) {
		d := &datadriven.TestData{Cmd: cmd, Input: input}
		for _, a := range args {
			k, v, has := strings.Cut(a, "=")
			d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: k})
			if has {
				d.CmdArgs[len(d.CmdArgs)-1].Vals = []string{v}
			}
		}
		s.command(d)
	}
	run("config", "plugins: [{type: round-robin-picker}]", "history=1")
	run("endpoints", "w1 10.0.0.1:8000\nw2 10.0.0.2:8000")
	run("request", "", "held")
	for i := range 100 {
		name := fmt.Sprint("r", i)
		run("request", "", name)
		run("gone", "", name)
	}
	if d := s.conns["held"].x.Request().Decision; d.Request.ID != "held" || d.Destination() != "10.0.0.1:8000" {
		t.Errorf("the decision of a request that goes on says %s to %s", d.Request.ID, d.Destination())
	}
}

// orNothing returns the part of a line that describes an error.
func orNothing(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
