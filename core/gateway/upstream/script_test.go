package upstream_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	. "github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/machine"
)

// TestScripts plays the scripts in testdata. "new" makes a cluster (endpoints=(a,b) streams=1 connections=1 …). "play"
// sends it messages, one a line, each with its time ("0.1 begin 1 a,b", "0.2 head 1 1 503"), and prints its effects.
// "kinds" are as in kinds below.
func TestScripts(t *testing.T) {
	kinds := []string{"try", "pass", "drop", "answer", "cut", "out", "probe"}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var x *Cluster
		var attempts gateway.Attempts
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			fx := &machine.Effects[Effect]{}
			switch d.Cmd {
			case "new":
				x, attempts = create(t, d)
				return ""
			case "play":
				var out strings.Builder
				for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
					words := strings.Fields(line)
					seconds, err := strconv.ParseFloat(words[0], 64)
					if err != nil {
						t.Fatal(err)
					}
					now := machine.Time(seconds * 1e9)
					if m := message(words[1:], attempts); m != nil {
						x.Input(now, m, fx)
					} else {
						x.Advance(now, fx)
					}
					for _, e := range fx.List {
						fmt.Fprintf(&out, "%v %s", e.At, kinds[e.Kind])
						for _, v := range []any{int(e.Request), e.Attempt, e.Endpoint, e.Answer.Status,
							string(e.Answer.Body)} {
							if v != 0 && v != "" {
								fmt.Fprintf(&out, " %v", v)
							}
						}
						if e.Kind == Out {
							fmt.Fprintf(&out, " %v", e.Endpoints)
						}
						out.WriteString("\n")
					}
					fx.Reset()
				}
				fmt.Fprintf(&out, "%d in flight\n", x.InFlight())
				return out.String()
			}
			return "unknown command"
		})
	})
}

func create(t *testing.T, d *datadriven.TestData) (*Cluster, gateway.Attempts) {
	c := Config{Streams: 1, Limits: &gateway.Limits{}, Lost: "connection termination"}
	a := gateway.Attempts{Base: 2 * time.Millisecond, Max: 4 * time.Millisecond}
	var o gateway.Outlier
	number := func(v string) *int {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return &n
	}
	span := func(v string) time.Duration {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, arg := range d.CmdArgs {
		v := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "endpoints":
			c.Endpoints = arg.Vals
		case "streams":
			c.Streams = *number(v)
		case "balancer":
			c.Limits.Balancer = &v
		case "connections":
			c.Limits.Connections = number(v)
		case "pending":
			c.Limits.Pending = number(v)
		case "requests":
			c.Limits.Requests = number(v)
		case "max-retries":
			c.Limits.Retries = number(v)
		case "budget":
			share := float64(*number(v))
			c.Limits.Budget = &share
		case "retries":
			a.Retries = *number(v)
		case "on":
			a.On = arg.Vals
		case "try":
			a.Try = span(v)
		case "whole":
			a.Whole = span(v)
		case "5xx":
			o.Consecutive5xx, c.Limits.Outlier = number(v), &o
		case "gateway":
			o.Gateway, c.Limits.Outlier = number(v), &o
		case "local":
			o.LocalOrigin, o.Split, c.Limits.Outlier = number(v), true, &o
		case "percent":
			o.MaxPercent = number(v)
		case "volume":
			o.SuccessVolume, o.SuccessHosts, c.Limits.Outlier = number(v), number("2"), &o
		case "failures":
			o.FailurePercent, c.Limits.Outlier = number(v), &o
		case "base":
			base := gateway.Duration(span(v))
			o.Base = &base
		case "interval":
			interval := gateway.Duration(span(v))
			o.Interval = &interval
		case "health":
			c.Health = &objects.Health{Interval: span(v), Timeout: span(v) / 2, UnhealthyThreshold: 2,
				HealthyThreshold: 1}
		default:
			t.Fatalf("unknown argument %s", arg.Key)
		}
	}
	return New(c), a
}

// message returns the message that a line's words stand for. It returns nil for no words, which only let time pass.
func message(words []string, a gateway.Attempts) Message {
	n := func(i int) int {
		if i >= len(words) {
			return 0
		}
		n, _ := strconv.Atoi(words[i])
		return n
	}
	switch request := uint64(n(1)); words[0] {
	case "begin":
		b := RequestHeaders{Request: request, ID: words[1], Attempts: a}
		if len(words) > 2 {
			b.Named = strings.Split(words[2], ",")
		}
		return b
	case "whole":
		return Whole{Request: request}
	case "head":
		return Head{Request: request, Attempt: n(2), Status: n(3), Code: n(4)}
	case "ended":
		return Ended{Request: request, Attempt: n(2)}
	case "broken":
		return Broken{Request: request, Attempt: n(2)}
	case "refused":
		return Broken{Request: request, Attempt: n(2), Refused: true}
	case "left":
		return Left{Request: request}
	case "endpoints":
		return Endpoints{List: words[1:]}
	case "probed":
		return Probed{Endpoint: words[1], Probe: n(2), Well: words[3] == "well", Answered: words[3] != "silent"}
	}
	return nil
}
