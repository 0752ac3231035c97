package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

var doNames = []string{"nothing", "submit", "send first", "resume", "send end", "refuse", "send error", "drop"}

func (e Effect) describe() string {
	var b strings.Builder
	b.WriteString("-> " + doNames[e.Do])
	if e.Echo != "" {
		fmt.Fprintf(&b, " echo=%s", e.Echo)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " status=%d", e.Status)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " reason=%q", e.Reason)
	}
	if e.AbortEngine {
		b.WriteString(" abort engine")
	}
	return b.String() + "\n"
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *Request
		var out strings.Builder
		rec := record.Func(func(e record.Event) {
			fmt.Fprintf(&out, "%v %s", e.Time, e.Step)
			for _, d := range e.Details {
				fmt.Fprintf(&out, " %s=%v", d.Key, d.Value)
			}
			out.WriteString("\n")
		})
		now := machine.Time(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out.Reset()
			now += machine.Second
			var arg string
			if len(d.CmdArgs) > 0 {
				arg = d.CmdArgs[0].Key
			}
			if d.Cmd == "new" {
				now = 0
				s = New(Options{Request: "r1", Held: arg == "held", Recorder: rec})
				return ""
			}
			return play(s, d.Cmd, arg, now, &out)
		})
	})
}

func play(s *Request, cmd, arg string, now machine.Time, out *strings.Builder) string {
	var e Effect
	switch cmd {
	case "received":
		e = s.Received(now, 13)
	case "prefill-started":
		s.PrefillStarted(now)
	case "first-token":
		e = s.FirstToken(now, arg)
	case "part2-begun":
		e = s.Part2Begun(now)
	case "part2":
		e = s.Part2(now, arg)
	case "violation":
		e = s.Violation(now, arg)
	case "rejected":
		e = s.Rejected(now, 404, arg)
	case "generated":
		e = s.Generated(now, 8, arg)
	case "failed":
		e = s.Failed(now, 500, arg, nil)
	case "peer-gone":
		e = s.PeerGone(now, arg)
	default:
		return "unknown command " + cmd
	}
	return out.String() + e.describe()
}

// Whatever comes in whatever order: at most one submit, the engine resumes only
// after the first token went out, and the request ends in exactly one way.
func TestAnyOrder(t *testing.T) {
	cmds := []string{"received", "prefill-started", "first-token", "part2-begun", "part2", "violation", "rejected",
		"generated", "failed", "peer-gone"}
	rapid.Check(t, func(t *rapid.T) {
		var ends, submits, firsts, resumes int
		var out strings.Builder
		s := New(Options{Request: "r", Held: rapid.Bool().Draw(t, "held")})
		count := func(line string) {
			switch {
			case strings.Contains(line, "-> submit"):
				submits++
			case strings.Contains(line, "-> send first"):
				firsts++
			case strings.Contains(line, "-> resume"):
				resumes++
				if firsts != 1 {
					t.Fatal("resumed before the first token")
				}
			case slices.ContainsFunc([]string{"send end", "refuse", "send error", "drop"},
				func(x string) bool { return strings.Contains(line, "-> "+x) }):
				ends++
			}
		}
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			count(play(s, rapid.SampledFrom(cmds).Draw(t, "cmd"), "x", machine.Time(i), &out))
		}
		count(play(s, "peer-gone", "x", 100, &out))
		if ends != 1 || submits > 1 || firsts > 1 || resumes > 1 || s.state != ended {
			t.Fatalf("ends %d, submits %d, firsts %d, resumes %d", ends, submits, firsts, resumes)
		}
	})
}
