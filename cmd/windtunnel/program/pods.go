package program

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/datalayer"
	"github.com/windtunnel/windtunnel/core/epp/picker/preview"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// podsCmd lists the pods that an endpoint picker knows.
type podsCmd struct {
	From     string `default:"127.0.0.1:9090" placeholder:"HOST:PORT" help:"The metrics address of an endpoint picker."`
	State    string `placeholder:"FILE" help:"A saved state of the pool instead, as windtunnel preview takes it."`
	Selector string `short:"l" placeholder:"SELECTOR" help:"Only pods with such labels: key=value, key!=value, key in (a,b), key notin (a,b), key, !key."`
	Labels   bool   `name:"show-labels" help:"Show the labels, too."`
	textOrJSON
}

func (podsCmd) Help() string {
	return `Shows the pods of an endpoint picker with the metrics that it has of them now: requests that wait and run,
usage of the KV cache, and usage of the accelerator where a scraper reads it (gpu_utilization). A dash
stands for a metric that the picker does not know.

Examples:
  windtunnel pods                                       # of windtunnel run --keep
  windtunnel pods -l llm-d.ai/role=prefill --show-labels
  windtunnel pods --from 127.0.0.1:9090 --output json   # all of it, for windtunnel preview --state`
}

// Run prints the pods in the picker's order.
func (c *podsCmd) Run(o *outside) error {
	var wanted picker.Selector
	if c.Selector != "" {
		var err error
		if wanted, err = picker.ParseSelector(c.Selector); err != nil {
			return exit.Errorf(exit.Usage, "-l: %w", err)
		}
	}
	read, from := runningState, c.From
	if c.State != "" {
		read, from = readState, c.State
	}
	s, err := read(from)
	if err != nil {
		return err
	}
	s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e preview.Endpoint) bool { return !wanted.Matches(e.Labels) })
	if c.json() {
		return writeJSON(o.Stdout, s)
	}
	if len(s.Endpoints) == 0 {
		_, err := fmt.Fprintln(o.Stderr, "no pods found")
		return err
	}
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 3, ' ', 0)
	heads := []string{"NAME", "ADDRESS", "WAITING", "RUNNING", "KV", "GPU"}
	if c.Labels {
		heads = append(heads, "LABELS")
	}
	fmt.Fprintln(w, strings.Join(heads, "\t"))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		gpu := "-"
		if share, known := e.Custom[datalayer.MetricGPU]; known {
			gpu = percentOf(share)
		}
		row := []string{terminal.Printable(e.Name), terminal.Printable(net.JoinHostPort(e.Address, e.Port)),
			strconv.FormatInt(e.Waiting, 10), strconv.FormatInt(e.Running, 10), percentOf(e.KV), gpu}
		if c.Labels {
			row = append(row, labelsOf(e))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func percentOf(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + "%" }

// labelsOf returns labels in kubectl's form.
func labelsOf(e *preview.Endpoint) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(e.Labels)) {
		out = append(out, terminal.Printable(key+"="+e.Labels[key]))
	}
	return cmp.Or(strings.Join(out, ","), "<none>")
}
