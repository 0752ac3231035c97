package enginecore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/apiserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// The scripts under testdata run a fleet of servers s0, s1 … that ask each other over connections that take no time. A
// command is an input from outside. The output below the line lists all effects of the servers, with the times at which
// they were due. Host names without a server never answer, except "nobody", which refuses connections.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		f := &fleet{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f.t = t
			f.out.Reset()
			f.command(d)
			return f.out.String()
		})
	})
}

// fleet is a driver of several servers that writes down every effect.
type fleet struct {
	t         *testing.T
	now       machine.Time
	out       strings.Builder
	servers   []*driven
	net       *Network
	netFx     NetworkEffects
	playing   bool // the network's effects
	seqs      map[string]*Sequence
	names     map[*Sequence]string
	inquiries map[Inquiry]asker
	inquiry   Inquiry
}

// behindAPI is a timer of a server whose API server takes 12 ms for a request, 10 ms of these one after the other, 6.4
// ms more for 64 tokens of a prompt, and 1 ms for each token of an answer.
type behindAPI struct{ engine.StepTimer }

func (behindAPI) APICosts() apiserver.Costs {
	const ms = machine.Millisecond
	return apiserver.Costs{Latency: 2 * ms, Request: 10 * ms, PromptToken: ms / 10, OutputToken: ms}
}

// driven is one server of a fleet.
type driven struct {
	*Core
	f       *fleet
	name    string
	fx      Effects
	playing bool
	calls   map[Call]connection
}

// connection is the asker's end of one, asker the holder's.
type (
	connection struct {
		to      *driven
		inquiry Inquiry
	}
	asker struct {
		from *driven
		call Call
	}
)

func newFleet(t *testing.T, servers int, p link.Profile, change func(*Config)) *fleet {
	f := &fleet{t: t, seqs: map[string]*Sequence{}, names: map[*Sequence]string{}, inquiries: map[Inquiry]asker{}}
	timer, err := latency.New(
		latency.Config{Kind: latency.KindConstant,
			Constant: latency.Constant{TimeToFirstToken: 10 * machine.Millisecond,
				InterTokenLatency: machine.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	var engines []string
	for i := range servers {
		c := Config{Index: i, EngineID: fmt.Sprintf("e%d", i), ViaStore: p.ViaStore, Ranks: 2,
			Engine: engine.Config{Timer: timer, NumGPUBlocks: 100, KVBytesPerToken: 1 << 20}}
		if change != nil {
			change(&c)
		}
		core, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		f.servers = append(f.servers,
			&driven{Core: core, f: f, name: fmt.Sprintf("s%d", i), calls: map[Call]connection{}})
		engines = append(engines, c.EngineID)
	}
	if f.net, err = NewNetwork(
		NetworkConfig{Profile: p, NIC: link.Wire{BytesPerSecond: 1e9}, Engines: engines}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) server(name string) *driven {
	for _, s := range f.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (s *driven) input(m Message) {
	s.Input(s.f.now, m, &s.fx)
	s.play()
}

func (s *driven) play() {
	if s.playing {
		return
	}
	s.playing = true
	for i := 0; i < len(s.fx.List); i++ {
		e := s.fx.List[i]
		s.say(&e)
		s.act(e)
	}
	s.fx.Reset()
	s.playing = false
}

func (s *driven) act(e Effect) {
	f := s.f
	switch a := e.Do.(type) {
	case NetworkMessage:
		f.net.Input(f.now, a, &f.netFx)
		f.deliver()
	case Ask:
		c, open := s.calls[a.Call]
		if !open {
			f.inquiry++
			c = connection{f.server(a.To.Host), f.inquiry}
			s.calls[a.Call] = c
			f.inquiries[c.inquiry] = asker{s, a.Call}
		}
		switch {
		case a.To.Host == "nobody":
			delete(s.calls, a.Call)
			s.input(Broke{a.Call, errors.New("connection refused")})
		case c.to != nil:
			c.to.input(Asked{c.inquiry, a.Question})
		}
	case HangUp:
		c := s.calls[a.Call]
		delete(s.calls, a.Call)
		delete(f.inquiries, c.inquiry)
		if c.to != nil {
			c.to.input(Left{c.inquiry})
		}
	case Answer:
		if who, there := f.inquiries[a.Inquiry]; there {
			who.from.input(Replied{who.call, a.Reply})
		}
	}
}

func (f *fleet) deliver() {
	if f.playing {
		return
	}
	f.playing = true
	for i := 0; i < len(f.netFx.List); i++ {
		d := f.netFx.List[i]
		f.servers[d.To].input(d.Message)
	}
	f.netFx.Reset()
	f.playing = false
}

// until plays all that is due by a time, in its order.
func (f *fleet) until(end machine.Time) {
	for {
		at, _ := f.net.Next()
		var who *driven
		for _, s := range f.servers {
			if t, ok := s.Next(); ok && t < at {
				at, who = t, s
			}
		}
		if at > end || at == machine.Never {
			break
		}
		f.now = max(f.now, at)
		if who != nil {
			who.Advance(f.now, &who.fx)
			who.play()
		} else {
			f.net.Advance(f.now, &f.netFx)
			f.deliver()
		}
	}
	if end < machine.Never-1 {
		f.now = max(f.now, end)
	}
}

func (s *driven) say(e *Effect) {
	text := ""
	switch a := e.Do.(type) {
	case nil:
		g := s.fx.OfEngine(e)
		if g.Kind == engine.ControlDone || g.Kind == engine.ControlRefused {
			return
		}
		text = fmt.Sprint(g.Kind)
		switch g.Kind {
		case engine.Finished:
			text += fmt.Sprintf(" %v after %d tokens", g.Reason, g.Count)
		case engine.Rejected:
			text += fmt.Sprint(" ", g.Code)
		case engine.PrefillStarted:
			text += fmt.Sprintf(" with %d cached", g.Count)
		case engine.KVHeld:
			text += fmt.Sprintf(" blocks %d+%d", s.holds[g.Handle].Blocks.First, g.Count)
		case engine.KVFreed:
			text += fmt.Sprint(" ", g.Reason)
		}
	case Ask:
		text = fmt.Sprintf("asks %s %d: %s", a.To.Host, a.Call, words(&a.Question))
	case HangUp:
		text = fmt.Sprintf("hangs up %d", a.Call)
	case Answer:
		text = fmt.Sprintf("answers %d: %+v last=%v", a.Inquiry, a.Reply, a.Last)
	case Event:
		text = fmt.Sprintf("event %v %d blocks, tokens %v", a.Kind, len(a.Hashes), a.Tokens)
	case Lost:
		text = "lost: " + a.Err.Error()
	case Kept:
		text = "not released: " + a.Err.Error()
	case Controlled:
		text = fmt.Sprintf("control %v done=%v dead=%v asleep=%d", a.Control.Op, a.Done, s.Dead(), s.SleepLevel())
	case LookUp:
		text = fmt.Sprintf("looks up %d blocks", len(a.Hashes))
	case Put:
		text = fmt.Sprintf("puts %d blocks", len(a.Hashes))
	default:
		text = fmt.Sprintf("%T %+v", a, a)
		text = strings.TrimPrefix(text, "enginecore.")
	}
	if q := e.Sequence; q != nil {
		text = s.f.names[q] + " " + text
	}
	fmt.Fprintf(&s.f.out, "%v %s %s\n", e.At, s.name, text)
}

func words(q *Question) string {
	switch q.Op {
	case OpGet:
		return fmt.Sprintf("get %s %d+%d", q.EngineID, q.Blocks.First, q.Blocks.Count)
	case OpAwait:
		return "await " + q.Key
	case OpFind:
		return fmt.Sprintf("find %d blocks", len(q.Hashes))
	}
	return string(q.Op)
}

func (f *fleet) arg(d *datadriven.TestData, key, otherwise string) string {
	if d.HasArg(key) {
		d.ScanArgs(f.t, key, &otherwise)
	}
	return otherwise
}

func (f *fleet) span(text string) machine.Time {
	v, err := time.ParseDuration(text)
	if err != nil {
		f.t.Fatal(err)
	}
	return machine.FromDuration(v)
}

func (f *fleet) command(d *datadriven.TestData) {
	number := func(key, otherwise string) int {
		n, err := strconv.Atoi(f.arg(d, key, otherwise))
		if err != nil {
			f.t.Fatal(err)
		}
		return n
	}
	if d.Cmd == "fleet" {
		p := connector.ProfileOf(f.arg(d, "connector", "nixlv2"))
		if d.HasArg("pipelined") {
			p = p.Pipelined()
		}
		*f = *newFleet(f.t, number("servers", "2"), p, func(c *Config) {
			c.Engine.KVHoldTimeout = f.span(f.arg(d, "hold", "10s"))
			c.PeerTimeout = f.span(f.arg(d, "peers", "2s"))
			c.Engine.NumGPUBlocks = number("blocks", "100")
			if d.HasArg("recompute") {
				c.Engine.KVLoadFailure = engine.KVLoadRecompute
			}
			if d.HasArg("api") {
				c.Engine.Timer = behindAPI{c.Engine.Timer}
			}
			if d.HasArg("oom") {
				c.OutOfMemory = errors.New("the weights need more than there is")
			}
			if d.HasArg("events") {
				c.Publish, c.Engine.KVEvents = true, true
			}
		})
		for _, s := range f.servers {
			s.f = f
		}
		return
	}
	if d.HasArg("at") {
		f.until(f.span(f.arg(d, "at", "")))
	}
	var s *driven
	if d.HasArg("server") {
		s = f.server(f.arg(d, "server", ""))
	}
	q := f.seqs[f.arg(d, "id", "")]
	switch d.Cmd {
	case "submit":
		q := &Sequence{Submit: engine.Submit{ID: engine.RequestID(len(f.seqs) + 1),
			PromptTokens: number("prompt", "64"), MaxTokens: number("out", "1"), HoldKV: d.HasArg("hold")},
			Key: f.arg(d, "key", ""), LoseKV: d.HasArg("lose")}
		q.Submit.HoldAfterFirst = d.HasArg("pause")
		ids := make([]uint32, 4096)
		for i := range ids {
			ids[i] = uint32(i + number("text", "0"))
		}
		q.Submit.Hashes = engine.BlockHashes(nil, 0, ids[:q.Submit.PromptTokens], 16)
		q.Tokens = func(first, count int) []uint32 { return ids[first : first+count] }
		f.seqs[f.arg(d, "id", "")], f.names[q] = q, f.arg(d, "id", "")
		host := f.arg(d, "from", "")
		switch {
		case d.HasArg("get"):
			h := f.seqs[f.arg(d, "get", "")].Hold
			q.Remote = &connector.Remote{Host: host, Port: 1, EngineID: "e" + host[1:], Blocks: h.Blocks,
				Tokens: number("tokens", "0")}
		case d.HasArg("await"):
			q.Remote = &connector.Remote{Host: host, Port: 1, Key: f.arg(d, "await", "")}
		case d.HasArg("source"):
			q.Source = &connector.Remote{Host: f.arg(d, "source", ""), Port: 1}
		}
		s.input(Submit{q})
	case "abort":
		s.input(Abort{q})
	case "resume":
		s.input(Resume{q})
	case "replace": // by a copy; the Core must not use the first one any more
		by := &Sequence{Owner: q.Owner}
		s.Replace(q, by)
		*q = Sequence{}
		f.seqs[f.arg(d, "id", "")], f.names[by] = by, f.arg(d, "id", "")
		delete(f.names, q)
	case "waits": // sums over completions
		var text metrics.Text
		look := s.Stats().At(f.now, &stats.Server{}, s.Engine())
		look.Write(&text)
		for line := range strings.Lines(string(text.Page)) {
			for _, name := range []string{"time_to_first_token", "request_queue_time", "e2e_request_latency"} {
				if rest, ok := strings.CutPrefix(line, "vllm:"+name+"_seconds_sum"); ok {
					fmt.Fprintln(&f.out, name, rest[strings.LastIndexByte(rest, ' ')+1:len(rest)-1])
				}
			}
		}
	case "control":
		op := map[string]engine.Op{"crash": engine.OpCrash, "restart": engine.OpRestart, "fail-rank": engine.OpFailRank,
			"sleep": engine.OpSleep, "wake": engine.OpWake, "drain": engine.OpDrain}[f.arg(d, "op", "")]
		s.input(&Control{Control: engine.Control{Op: op, Rank: number("rank", "0")}, Level: number("level", "0")})
	case "ask": // by a client that is not a server
		f.inquiry = 100
		var quest Question
		quest.Op, quest.Key, quest.EngineID = Op(f.arg(d, "op", "")), f.arg(d, "key", ""), f.arg(d, "engine", "")
		s.input(Asked{100, quest})
	case "health":
		refuses := func(at machine.Time) string {
			if bad := s.Refuses(at); bad != nil {
				return fmt.Sprintf("%d %q", bad.Status, bad.Message)
			}
			return "nobody"
		}
		fmt.Fprintf(&f.out, "dead=%v, refuses: %s, after 100s: %s\n", s.Dead(), refuses(0), refuses(100*machine.Second))
	case "leave":
		s.input(Left{100})
	case "lose": // what is on its way
		f.net.Input(f.now, Break{Of: number("of", "0"), Stay: d.HasArg("stay")}, &f.netFx)
		f.deliver()
	case "mend":
		f.net.Input(f.now, Mend{Of: number("of", "0")}, &f.netFx)
		f.deliver()
	case "break": // the connections of a server
		for call, c := range s.calls {
			delete(f.inquiries, c.inquiry)
			delete(s.calls, call)
			c.to.input(Left{c.inquiry})
			s.input(Broke{call, errors.New("connection reset")})
		}
	case "run":
	case "rest": // until nothing more happens
		f.until(machine.Never - 1)
		for _, s := range f.servers {
			if n := s.Busy() + s.eng.KVBlocksUsed() + len(s.calls) + f.net.InFlight(); n > 0 {
				fmt.Fprintf(&f.out, "%s still has %d sequences, %d holds, %d inquiries, %d calls, %d timers, %d "+
					"blocks; %d bytes move\n", s.name, s.sequences.Len(), len(s.holds), len(s.inquiries),
					len(s.Core.calls), s.timers.Len(), s.eng.KVBlocksUsed(), f.net.InFlight())
			}
		}
	default:
		f.t.Fatalf("unknown command %s", d.Cmd)
	}
}
