package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	. "github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// TestScripts plays testdata: "read [controller=…] [strict]" reads YAML and says
// what is wrong or noted, "tables" shows the routes as they are tried, "status" the
// conditions (all, or those that contain a text), "limits" those of the backends, "body" what the body-based router
// makes of bodies, one a line, "ask gateway=… [port=…]" what
// becomes of requests, one a line: METHOD host target [header=value …].
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var p *Program
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "read":
				s := &Set{}
				if err := s.Add("m.yaml", []byte(d.Input)); err != nil {
					return err.Error() + "\n"
				}
				o := Options{Supply: !d.HasArg("strict")}
				d.MaybeScanArgs(t, "controller", &o.Controller)
				p = Build(s, o)
				for _, w := range append(s.Warnings, p.Notes...) {
					fmt.Fprintln(&out, w)
				}
				if p.Mistakes != nil {
					return out.String() + p.Mistakes.Error() + "\n"
				}
				return out.String() + "ok\n"
			case "workloads":
				s := &Set{}
				if err := s.Add("m.yaml", []byte(d.Input)); err != nil {
					return err.Error() + "\n"
				}
				Build(s, Options{Supply: true})
				for _, w := range s.Workloads {
					fmt.Fprintf(&out, "%d × %s %s %v: %v %v\n", w.Replicas, w.Kind, w.Name, w.Pods,
						w.Containers[0].Line(), w.Containers[0].Env)
				}
			case "body":
				r := p.Routers[0]
				for _, g := range p.Gateways {
					fmt.Fprintf(&out, "%s: first %v\n", g.Name, g.Router == r)
				}
				for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
					v := r.Router.Decide([]byte(line))
					if v.Answer != nil {
						fmt.Fprintf(&out, "%d %s\n", v.Answer.Status, v.Answer.Message)
					} else {
						fmt.Fprintf(&out, "%v\n", v.Set)
					}
				}
			case "tables":
				for _, g := range p.Gateways {
					for _, table := range g.Tables() {
						fmt.Fprintln(&out, table.Name)
						for _, h := range table.Hosts {
							fmt.Fprintf(&out, "  %q\n", h.Domain)
							for _, r := range h.Routes {
								fmt.Fprintf(&out, "    %s\n", r)
							}
						}
					}
				}
			case "status":
				for _, s := range p.Status {
					for line := range strings.Lines(s.String()) {
						if strings.Contains(line, strings.TrimSpace(d.Input)) {
							out.WriteString(line)
						}
					}
				}
			case "limits":
				for _, b := range p.Backends {
					text, err := json.Marshal(b.Limits)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(&out, "%s: %s\n", b.Key, text)
				}
			case "ask":
				port := 80
				d.MaybeScanArgs(t, "port", &port)
				table := p.Gateways[0].Tables()[0]
				for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
					words := strings.Fields(line)
					q := Request{Method: words[0], Host: words[1], Target: words[2]}
					for _, w := range words[3:] {
						name, value, _ := strings.Cut(w, "=")
						q.Headers = append(q.Headers, header.Header{Name: name, Value: value})
					}
					v := table.Decide(q, port, func(int) int { return 0 })
					switch {
					case v.Status != 0:
						fmt.Fprintf(&out, "%d %s\n", v.Status, v.Location)
					default:
						fmt.Fprintf(&out, "%s: %s %s %v\n", v.Share.Backend.Key, v.Host, v.Target, v.Headers)
					}
				}
			default:
				return "unknown command"
			}
			if out.Len() == 0 {
				return "nothing\n"
			}
			return out.String()
		})
	})
}
