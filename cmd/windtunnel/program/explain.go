package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

// explainCmd asks a running endpoint picker, or a recording, why a request went
// where it went.
type explainCmd struct {
	Request string `arg:"" help:"The request's number, as views show it, or its x-request-id."`
	From    string `default:"127.0.0.1:9090" placeholder:"RECORDING|HOST:PORT" help:"A recording, - for standard input, or the metrics address of an endpoint picker."`
	textOrJSON
}

func (explainCmd) Help() string {
	return `Shows the candidates, which of them each filter removed and why, the raw and weighted score of each scorer
for each endpoint, ties, the choice, and how long it took.

Examples:
  windtunnel explain 5f1c2c1e-0e5c-4b0e-8a3f-1f0a7f3f1c11
  windtunnel explain 7 --from 127.0.0.1:9090                # the seventh request of windtunnel run --keep
  windtunnel run my.yaml --record run.ndjson.gz
  windtunnel explain 7 --from run.ndjson.gz
  windtunnel sim my.yaml --record sim.ndjson.gz             # virtual time explains, too
  windtunnel explain req-1-000007 --from sim.ndjson.gz
  windtunnel explain 5f1c2c1e-0e5c-4b0e-8a3f-1f0a7f3f1c11 --from epp.ndjson   # of windtunnel epp --record`
}

// Run prints the newest decision for the request.
func (c *explainCmd) Run(o *outside) error {
	e, err := c.find(o)
	if err != nil {
		return err
	}
	return c.show(o, e)
}

func (c *explainCmd) find(o *outside) (*picker.Explanation, error) {
	if c.From == "-" {
		return c.recorded(func(each func(record.Event) error) error {
			_, err := report.Read("standard input", o.Stdin, each)
			return err
		})
	}
	if _, err := os.Stat(c.From); err == nil {
		return c.recorded(func(each func(record.Event) error) error {
			_, err := report.ReadFile(c.From, each)
			return err
		})
	} else if !errors.Is(err, fs.ErrNotExist) || strings.Contains(c.From, ".ndjson") {
		return nil, exit.With(exit.Input, err)
	}
	var list []*picker.Explanation
	if err := getJSON(c.From, "/debug/decisions?limit=1&request="+url.QueryEscape(c.Request), &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, exit.Hint(exit.Input,
			fmt.Errorf("the endpoint picker at %s remembers no request %s", c.From, c.Request),
			"it keeps the newest ones only; see --decisions of windtunnel epp")
	}
	return list[0], nil
}

// recorded looks for the request in a recording; of several attempts the last
// counts.
func (c *explainCmd) recorded(read func(func(record.Event) error) error) (*picker.Explanation, error) {
	var found any
	var pool, picked, observed string
	known := false
	err := read(func(e record.Event) error {
		if !record.Named(c.Request, e.Request) {
			return nil
		}
		known = true
		if e.Hop == record.EPP && e.Step == record.RequestReceived {
			pool, _ = e.Details.Get("pool").(string)
			picked, _ = e.Details.Get("picker").(string)
		}
		if x := e.Details.Get(record.Explanation); x != nil {
			found = x
		}
		if e.Hop == record.EPP && e.Step == record.PredictionChecked {
			observed = truth(e.Details)
		}
		return nil
	})
	if found == nil {
		if e := c.played(); e != nil {
			return e, nil
		}
		switch {
		case err != nil:
			return nil, recording.InputError(err)
		case !known:
			return nil, exit.Errorf(exit.Input, "%s has no request %s", c.From, c.Request)
		}
		return nil, exit.Hint(exit.Input,
			fmt.Errorf("%s has no decision about request %s", c.From, c.Request),
			"recordings of windtunnel's own endpoint picker have decisions; another picker's do not")
	}
	var e picker.Explanation
	text, err := json.Marshal(found)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "%s: the explanation of request %s: %w", c.From, c.Request, err)
	}
	e.Pool, e.Picker = pool, picked
	if observed != "" {
		e.Notes = append(e.Notes, observed)
	}
	return &e, nil
}

// truth returns the observed times of a predicted request, in words.
func truth(d record.Details) string {
	var out []string
	for _, x := range []struct{ name, words string }{{"ttft_ms", "the first token took %.1f ms"},
		{"tpot_ms", "each further token %.2f ms"}} {
		was, ok := d.Get(x.name).(float64)
		if !ok {
			continue
		}
		text := fmt.Sprintf(x.words, was)
		if is, ok := d.Get("predicted_" + x.name).(float64); ok {
			text += fmt.Sprintf(" (predicted %.4g)", is)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// played plays a recording's log of inputs and returns the picker's explanation
// as it did; nil where there is none, or the request is not in it.
func (c *explainCmd) played() (e *picker.Explanation) {
	p := &inputlog.Player{Registry: plugins.Builtin(), Options: func(x *picker.Options) { x.Detail = true }}
	p.Watch = func(x *epp.Effect) {
		if x.Kind == epp.Decided && x.Request.Request != nil && x.Request.ID == c.Request && x.Request.Decision != nil {
			e = x.Request.Decision.Explain()
		}
	}
	if c.From != "-" {
		_ = recording.ReadInputsFile(c.From, p.Line) // what was found before a mistake counts
	}
	return e
}

// maxPage bounds what an endpoint picker's page may hold.
const maxPage = 64 << 20

// getJSON reads a page of an endpoint picker's metrics port; from is HOST:PORT
// or a URL.
func getJSON(from, page string, into any) error {
	if !strings.Contains(from, "://") {
		from = "http://" + from
	}
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(strings.TrimSuffix(from, "/") + page)
	if err != nil {
		return exit.Hint(exit.Environment, err, "is the endpoint picker running, and is this its metrics address?")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	if resp.StatusCode != http.StatusOK {
		return exit.Errorf(exit.Environment, "%s answered %d for %s: no endpoint picker of windtunnel serves its "+
			"metrics there", from, resp.StatusCode, page)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return exit.Errorf(exit.Environment, "%s%s is not what an endpoint picker answers: %w", from, page, err)
	}
	return nil
}
