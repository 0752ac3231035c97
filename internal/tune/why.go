package tune

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Elsewhere is how the best configuration decides about requests of today's run, each after the decisions of today's
// picker before it.
type Elsewhere struct {
	Pool string `json:"pool"`
	// Seed and Requests are those of the run.
	Seed      uint64 `json:"seed"`
	Requests  int    `json:"requests"`
	Decisions int    `json:"decisions"`
	Moved     int    `json:"moved"`
	// Reasons count moved requests, the most frequent reason first. Examples are the last mostExamples of them.
	Reasons  []inputlog.MovedReason  `json:"reasons"`
	Examples []inputlog.MovedRequest `json:"examples"`
}

// mostExamples and mostReasons bound the moved requests and the reasons that are shown.
const mostExamples, mostReasons = 3, 3

// queueAt begins the name of the measure of the requests that wait at a server, averaged over time.
const queueAt = "queue mean at "

// queues adds the mean queue of each server.
func queues(to map[string]float64, load []report.LoadSummary) {
	for i := range load {
		for k := range load[i].Each {
			s := &load[i].Each[k]
			to[queueAt+s.Name] = s.Queue.Mean
		}
	}
}

// longest returns the server with the longest queue, "" without queues. Of equal ones it is the first by name.
func longest(measures map[string]float64) (server string, requests float64) {
	for _, name := range slices.Sorted(maps.Keys(measures)) {
		s, is := strings.CutPrefix(name, queueAt)
		if is && (server == "" || measures[name] > requests) {
			server, requests = s, measures[name]
		}
	}
	return server, requests
}

// logging is a recorder that also gets the log of the pickers' inputs.
type logging struct {
	record.Recorder
	inputs report.Inputs
}

// Inputs returns where the log goes.
func (l *logging) Inputs() *report.Inputs { return &l.inputs }

// elsewhere plays today's configuration with the first seed that decides, and asks the pickers of a better one about
// its requests.
func (t *tuner) elsewhere(out *Tuned) error {
	if !out.Better {
		return nil
	}
	j := t.tried()
	s, err := t.prepared(0, &j)
	if err != nil {
		return err
	}
	var log bytes.Buffer
	tally := report.NewTallyFor(s.Workload.Requests)
	to := &logging{tally, report.Inputs{To: &log, Version: version.Text()}}
	if err := t.player.Record(t.ctx, s, to, tally, nil); err != nil {
		return err
	}
	for _, pool := range slices.Sorted(maps.Keys(out.Configs)) {
		name := pool
		if len(t.base.Pools) == 1 {
			name = "" // the log names pools where there are several
		}
		a, err := whatif.Ask(func(each func([]byte) error) error {
			for line := range bytes.Lines(log.Bytes()) {
				if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
					return err
				}
			}
			return nil
		}, whatif.Question{Pool: name, Config: out.Configs[pool], Name: "the best configuration", Most: mostExamples})
		if err != nil {
			return err
		}
		out.Elsewhere = append(out.Elsewhere, Elsewhere{Pool: pool, Seed: s.Seed, Requests: s.Workload.Requests,
			Decisions: a.Decisions, Moved: a.Moved, Reasons: a.Reasons, Examples: a.Requests})
	}
	return nil
}

// writeElsewhere prints which requests go elsewhere, and why.
func (x *Tuned) writeElsewhere(w io.Writer) {
	for i := range x.Elsewhere {
		e := &x.Elsewhere[i]
		of := ""
		if len(x.Elsewhere) > 1 {
			of = " of pool " + e.Pool
		}
		fmt.Fprintf(w, "\n%d of %d requests%s go elsewhere by candidate %d (seed %d)\n", e.Moved, e.Decisions, of,
			x.Knee+1, e.Seed)
		for _, r := range e.Reasons[:min(len(e.Reasons), mostReasons)] {
			fmt.Fprintf(w, "  %d: %s\n", r.Requests, r.Reason)
		}
		for k := range e.Examples {
			r := &e.Examples[k]
			fmt.Fprintln(w, terminal.Wrap("  "+record.Label(r.Request)+" "+r.Text(), 4, mostWidth))
		}
	}
}
