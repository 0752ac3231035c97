package link_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// testdata/script plays transfers over small clusters. Commands: topology,
// start, cancel, change, run (play until nothing is pending), ucx.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var topology *link.Topology
		var n *link.Network
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			var fx link.Effects
			var now machine.Time
			var out strings.Builder
			fail := func(err error) string { return "error: " + err.Error() + "\n" }
			number := func(key string) int {
				value := 0
				if td.HasArg(key) {
					td.ScanArgs(t, key, &value)
				}
				return value
			}
			if td.HasArg("at") {
				var text string
				td.ScanArgs(t, "at", &text)
				d, err := time.ParseDuration(text)
				if err != nil {
					return fail(err)
				}
				now = machine.FromDuration(d)
			}
			switch td.Cmd {
			case "topology":
				c := link.TopologyConfig{Nodes: number("nodes"), NodesPerRack: number("perrack")}
				for key, to := range map[string]*link.Wire{"nic": &c.NIC, "uplink": &c.Uplink, "inside": &c.Inside,
					"store": &c.Store} {
					if td.HasArg(key) {
						var name string
						td.ScanArgs(t, key, &name)
						var err error
						if *to, err = link.WireNamed(name); err != nil {
							return fail(err)
						}
					}
				}
				var err error
				if topology, err = link.NewTopology(c); err != nil {
					return fail(err)
				}
				n, err = link.New(topology.Links())
				if err != nil {
					return fail(err)
				}
				return fmt.Sprintf("%d links\n", len(topology.Links()))
			case "start":
				var name string
				td.ScanArgs(t, "connector", &name)
				p := connector.ProfileOf(name)
				if td.HasArg("int8") {
					p = p.Compressed()
				}
				if td.HasArg("pipelined") {
					p = p.Pipelined()
				}
				if td.HasArg("ucx") {
					var tls []string
					for _, a := range td.CmdArgs {
						if a.Key == "ucx" {
							tls = a.Vals
						}
					}
					if !link.UCXHasRDMA(strings.Join(tls, ",")) {
						p = p.WithoutRDMA()
					}
				}
				s, err := p.Transfer(topology, link.ID(number("id")), number("from"), number("to"),
					int64(number("mib"))<<20)
				if err != nil {
					return fail(err)
				}
				n.Input(now, s, &fx)
			case "cancel":
				n.Input(now, link.Cancel{link.ID(number("id"))}, &fx)
			case "change":
				n.Input(now, link.Change{link.LinkID(number("link")), int64(number("mbps")) * 1e6}, &fx)
			case "advance":
				n.Advance(now, &fx)
			case "load":
				transfers, permille := n.Load(link.LinkID(number("link")))
				return fmt.Sprintf("%s: %d transfers, %d ‰\n", n.Link(link.LinkID(number("link"))).Name, transfers,
					permille)
			case "run":
				for at, ok := n.Next(); ok; at, ok = n.Next() {
					n.Advance(at, &fx)
				}
				fmt.Fprintf(&out, "%d in flight\n", n.InFlight())
			case "ucx":
				for _, line := range strings.Split(td.Input, "\n") {
					fmt.Fprintf(&out, "%s: rdma %v\n", line, link.UCXHasRDMA(line))
				}
			}
			list := ""
			for _, e := range fx.List {
				list += fmt.Sprintf("%10s  %d %s", e.At.Duration().Round(10*time.Microsecond), e.ID, e.Kind)
				if e.Leg > 0 {
					list += " leg " + strconv.Itoa(e.Leg)
				}
				if e.Kind == link.Usable || e.Kind == link.Cancelled {
					list += fmt.Sprintf(" with %d MiB", e.Moved>>20)
				}
				if e.Reason != "" {
					list += ": " + e.Reason
				}
				list += "\n"
			}
			return list + out.String()
		})
	})
}
