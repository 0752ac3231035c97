package disagg

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// script plays one sidecar from a file.
type script struct {
	c      *Config
	x      *ClientRequest
	now    machine.Time
	number uint64
	out    strings.Builder
	change *Change

	unasked map[int]bool // legs whose body is collected unasked
}

func (s *script) Record(e record.Event) {
	fmt.Fprintf(&s.out, "  · %s", e.Step)
	for _, d := range e.Details {
		if d.Key != "method" && d.Key != "path" && d.Key != "bytes" {
			fmt.Fprintf(&s.out, " %s=%v", d.Key, d.Value)
		}
	}
	s.out.WriteByte('\n')
}

// connectorOf returns the connector of a name; nil, which is the default, where there is none.
func connectorOf(name string) *connector.Connector {
	c, _ := connector.Named(name)
	return c
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		s := &script{c: &Config{Seed: 1, Engines: NewEngines()}}
		s.c.Recorder = s
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.run(t, d)
			if s.out.Len() == 0 {
				return "ok"
			}
			return s.out.String()
		})
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) {
	arg := func(name string) string {
		var v string
		d.MaybeScanArgs(t, name, &v)
		return v
	}
	leg, _ := strconv.Atoi(arg("leg"))
	status, _ := strconv.Atoi(arg("status"))
	switch d.Cmd {
	case "sidecar":
		s.c.Connector = connectorOf(arg("connector"))
		s.c.FallBack = d.HasArg("fall-back")
		s.c.Retries, _ = strconv.Atoi(arg("retries"))
		s.c.RetryOn5xx = d.HasArg("retry-on-5xx")
		s.c.ChunkTokens, _ = strconv.Atoi(arg("chunk"))
		s.c.PromptThreshold, _ = strconv.Atoi(arg("threshold"))
		s.c.Encoder = ECConnector(arg("encoder"))
		s.c.P2PPull = d.HasArg("pull")
		if s.c.Ranks, _ = strconv.Atoi(arg("ranks")); s.c.Ranks > 0 {
			s.c.BasePort, s.c.Port, s.c.PodIP, s.c.ForwardRanks = 8000, 8000, "10.0.0.1", true
		}
		s.c.MoRIIO = connector.MoRIIO{Write: d.HasArg("moriio"), Parallel: d.HasArg("parallel"),
			DecodeNotifyPort:     connector.DefaultMoRIIONotifyPort,
			DecodeHandshakePort:  connector.DefaultMoRIIOHandshakePort,
			PrefillNotifyPort:    connector.DefaultMoRIIONotifyPort,
			PrefillHandshakePort: connector.DefaultMoRIIOHandshakePort}
		if n := arg("sessions"); n != "" {
			size, _ := strconv.Atoi(n)
			var err error
			s.c.Sessions, err = NewSessions(size, func(v Session) { fmt.Fprintf(&s.out, "  · evicted %s\n", v.ID) })
			if err != nil {
				t.Fatal(err)
			}
		}
		if a := arg("allow"); a != "" {
			var list []netip.AddrPort
			for e := range strings.SplitSeq(a, "+") {
				list = append(list, netip.MustParseAddrPort(e))
			}
			s.c.Allow = new(Allowlist)
			s.c.Allow.Set(list)
		}
	case "request":
		s.number++
		path := arg("path")
		if path == "" {
			path = chatPath
		}
		r := Request{Number: s.number, ID: "r", Method: "POST", Path: path, Session: arg("session"),
			Body: []byte(d.Input), Prefillers: ParseTargets(arg("prefiller")),
			Encoders: ParseTargets(arg("encoders")), Source: ParseSource(arg("source")), RankHost: arg("rank"),
			Peers: connector.MoRIIOPeers{Local: "10.0.0.9"}}
		for i := range r.Prefillers {
			if a := arg("resolves-to"); a != "" && !r.Prefillers[i].Addr.IsValid() {
				r.Prefillers[i].Addr = netip.MustParseAddr(a)
			}
		}
		s.x, s.change = New(s.c, r), nil
		s.play(func(fx *Effects) { s.x.Input(s.now, Start{}, fx) })
	case "answers": // a leg's whole answer, as the driver would hand it on
		kind, input := "application/json", d.Input
		if strings.HasPrefix(input, "data:") {
			kind = "text/event-stream"
			input = strings.ReplaceAll(input, "\n", "\n\n") + "\n\n" // each line is an event
		}
		if status == 0 {
			status = 200
		}
		unasked := s.unasked[leg]
		for _, e := range s.input(Head{Leg: leg, Status: status, ContentType: kind}) {
			unasked = false
			switch e := e.Do.(type) {
			case Collect:
				s.input(Whole{leg, []byte(input)})
			case Deliver:
				s.deliver(e, input)
			case Peek:
				for part := range strings.SplitAfterSeq(input, "\n\n") {
					s.input(Part{Leg: leg, Data: []byte(part)})
				}
			}
		}
		if unasked {
			s.input(Whole{leg, []byte(input)})
		}
	case "fails":
		s.input(Failed{Leg: leg, Reason: arg("reason"), Refused: d.HasArg("refused")})
	case "wait":
		at, ok := s.x.Next()
		if !ok {
			s.out.WriteString("nothing to wait for\n")
			return
		}
		fmt.Fprintf(&s.out, "  after %v\n", (at - s.now).Duration())
		s.now = at
		s.play(func(fx *Effects) { s.x.Advance(at, fx) })
	case "client-leaves":
		s.input(Gone{"the client left"})
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (s *script) input(m Message) []Effect {
	s.now += machine.Millisecond
	return s.play(func(fx *Effects) { s.x.Input(s.now, m, fx) })
}

func (s *script) play(call func(fx *Effects)) []Effect {
	var fx Effects
	call(&fx)
	s.effects(fx.List)
	return fx.List
}

func (s *script) deliver(e Deliver, text string) {
	s.now += machine.Millisecond
	s.x.Input(s.now, FirstByte{1}, new(Effects))
	out := string(e.Before)
	if e.Change == nil {
		out += text
	} else {
		for line := range strings.SplitAfterSeq(text+"\n", "\n") {
			if line != "" {
				out += string(e.Change.Write([]byte(line)))
			}
		}
		out += string(e.Change.End())
	}
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		if line != "" {
			fmt.Fprintf(&s.out, "client ← %s\n", line)
		}
	}
	s.input(Delivered{len(out)})
}

func (s *script) effects(list []Effect) {
	for _, e := range list {
		switch e := e.Do.(type) {
		case Call:
			to := "decode"
			if e.Leg.Target.Host != "" {
				to = e.Leg.Target.String()
			}
			body := string(e.Leg.Body)
			if e.Leg.Original {
				body = "the client's own body"
			}
			if e.Leg.Detached || e.Leg.Concurrent && e.Leg.Kind != Decode {
				if s.unasked == nil {
					s.unasked = map[int]bool{}
				}
				s.unasked[e.Leg.ID] = true
			}
			if e.Leg.Rank > 0 {
				to += fmt.Sprintf(" of rank %d", e.Leg.Rank)
			}
			fmt.Fprintf(&s.out, "leg %d %s → %s %s\n", e.Leg.ID, e.Leg.Kind, to, body)
		case Say:
			fmt.Fprintf(&s.out, "client ← %s\n",
				strings.ReplaceAll(strings.TrimSpace(string(e.Data)), "\n\n", "\nclient ← "))
			if e.End {
				s.input(Delivered{len(e.Data)})
			}
		case Drop:
			fmt.Fprintf(&s.out, "leg %d dropped\n", e.Leg)
		case Answer:
			fmt.Fprintf(&s.out, "client ← %d %s\n", e.Status, e.Body)
		}
	}
}
