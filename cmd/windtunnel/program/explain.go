package program

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// explainCmd explains a request's decision, from a running endpoint picker or from a recording.
type explainCmd struct {
	Request string `arg:"" help:"The request's number, as views show it, or its x-request-id."`
	From    string `default:"127.0.0.1:9090" placeholder:"RECORDING|HOST:PORT" help:"A recording, - for standard input, or the metrics address of an endpoint picker."`
	Config  string `placeholder:"FILE" help:"Decide about the recorded request again, with another EndpointPickerConfig."`

	Weight map[string]float64 `placeholder:"SCORER=W" help:"Decide again with another weight of a scorer, such as queue-scorer=5 or, in one profile, decode/queue-scorer=5. Repeatable."`
	textOrJSON
}

func (explainCmd) Help() string {
	return `Shows the candidates, which of them each filter removed and why, the score of each scorer for each endpoint
and its product with the weight, what the scorers read (requests that wait and run, KV cache in use, how much of
the prompt the endpoint holds, the age of the scrape), ties, the choice, and how long it took. --config and --weight
make the decision again, with everything that the picker knew then.

Examples:
  windtunnel explain 5f1c2c1e-0e5c-4b0e-8a3f-1f0a7f3f1c11
  windtunnel explain 7 --from 127.0.0.1:9090                # the seventh request of windtunnel run --keep
  windtunnel run my.yaml --record run.ndjson.gz
  windtunnel explain 7 --from run.ndjson.gz
  windtunnel explain 7 --from run.ndjson.gz --config other.yaml
  windtunnel explain 7 --from run.ndjson.gz --weight queue-scorer=5
  windtunnel sim my.yaml --record sim.ndjson.gz             # virtual time explains, too
  windtunnel explain req-1-000007 --from sim.ndjson.gz
  windtunnel explain 5f1c2c1e-0e5c-4b0e-8a3f-1f0a7f3f1c11 --from epp.ndjson   # of windtunnel epp --record`
}

// Run prints the newest decision for the request.
func (c *explainCmd) Run(o *outside) error {
	again := c.Config != "" || len(c.Weight) > 0
	running, err := c.isRunning()
	switch {
	case err != nil:
		return exit.With(exit.Input, err)
	case again && (running || c.From == "-"):
		return exit.Errorf(exit.Usage, "--config and --weight play a recording's inputs again: found --from %s; "+
			"expected a file that --record of run, sim or epp wrote", c.From)
	case running:
		e, err := c.running()
		if err != nil {
			return err
		}
		return c.show(o, e)
	}
	e, err := c.recorded(o)
	switch {
	case err != nil:
		return err
	case again:
		return c.again(o, e)
	}
	return c.show(o, e)
}

// isRunning reports whether --from is the address of a running endpoint picker.
func (c *explainCmd) isRunning() (bool, error) {
	if c.From == "-" {
		return false, nil
	}
	_, err := os.Stat(c.From)
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(c.From, ".ndjson") {
		return true, nil
	}
	return false, err
}

// decidedAgain is the result of explain --config and --weight.
type decidedAgain struct {
	// Move is how the decision differs, nil where both are the same.
	Move  *inputlog.MovedRequest `json:"move"`
	Was   *picker.Explanation    `json:"was"`
	Now   *picker.Explanation    `json:"now"`
	Notes []string               `json:"notes,omitempty"`
}

// again makes the recorded decision again, with the configuration and the weights of the flags.
func (c *explainCmd) again(o *outside, recorded *picker.Explanation) error {
	q := whatif.Question{Request: c.Request, Pool: cmp.Or(recorded.Picker, recorded.Pool), Weights: c.Weight, Most: 1}
	if c.Config != "" {
		other, err := readOther(c.Config)
		if err != nil {
			return err
		}
		q.Config, q.Name = other.Config, other.Name
	}
	a, err := whatif.Ask(func(each func([]byte) error) error { return eachInput(o, []string{c.From}, each) }, q)
	switch {
	case err != nil:
		return exit.With(exit.Input, err)
	case a.Was == nil:
		return exit.Errorf(exit.Input, "the log of inputs in %s has no decision about request %s", c.From, c.Request)
	}
	for _, e := range []*picker.Explanation{a.Was, a.Now} {
		e.Pool, e.Picker, e.Tokens = recorded.Pool, recorded.Picker, recorded.Tokens
	}
	a.Now.Notes = append(a.Now.Notes, a.Notes...)
	if c.json() {
		return writeJSON(o.Stdout, decidedAgain{a.Move, a.Was, a.Now, a.Notes})
	}
	text := fmt.Sprintf("%s would have gone to %s as it did", record.Label(a.Was.Request), a.Now.Destination)
	if a.Now.Error != "" {
		text = record.Label(a.Was.Request) + " would have been refused as it was"
	}
	if a.Move != nil {
		text = record.Label(a.Was.Request) + " would have moved: " + a.Move.Text()
	}
	paint := terminal.Paint(o.Color())
	fmt.Fprintf(o.Out(), "%s\n\n", paint.Bold(terminal.Wrap(terminal.Printable(text), 4, o.Columns)))
	return c.show(o, a.Now)
}

// running returns the explanation of a running endpoint picker.
func (c *explainCmd) running() (*picker.Explanation, error) {
	var list []*picker.Explanation
	if err := pickerPage(c.From, "/debug/decisions?limit=1&request="+url.QueryEscape(c.Request), &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, exit.Hint(exit.Input,
			fmt.Errorf("the endpoint picker at %s remembers no request %s", c.From, c.Request),
			"it keeps the newest ones only; see --decisions of windtunnel epp")
	}
	return list[0], nil
}

// recorded looks for the request in a recording. Of several attempts, the last counts.
func (c *explainCmd) recorded(o *outside) (*picker.Explanation, error) {
	var found any
	var pool, picked, observed string
	var tokens int
	known := false
	_, err := readRecording(o, c.From, func(e record.Event) error {
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
		if n, ok := e.Details.Get("prompt_tokens").(float64); ok && e.Hop == record.Server {
			tokens = int(n)
		}
		if e.Hop == record.EPP && e.Step == record.PredictionChecked {
			observed = observedTimes(e.Details)
		}
		return nil
	})
	if found == nil {
		if e := c.replayed(); e != nil {
			return e, nil
		}
		switch {
		case err != nil:
			return nil, recording.InputError(err)
		case !known:
			return nil, exit.Hint(exit.Input,
				fmt.Errorf("%s has no request %s; expected the number or the id of one that it has", c.From, c.Request),
				"windtunnel replay --view requests lists them")
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
	if e.Estimated == 0 { // an older version recorded the estimate under the other name
		e.Estimated = e.Tokens
	}
	e.Pool, e.Picker, e.Tokens = pool, picked, tokens
	if observed != "" {
		e.Notes = append(e.Notes, observed)
	}
	return &e, nil
}

// observedTimes returns the observed times of a predicted request, in words.
func observedTimes(d record.Details) string {
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

// replayed plays a recording's log of inputs and returns the picker's explanation of the request, nil without a log or
// the request in it.
func (c *explainCmd) replayed() (e *picker.Explanation) {
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

// maxPage bounds the pages that commands read from running parts, in bytes.
const maxPage = 64 << 20

// pickerPage reads a page of an endpoint picker's metrics port; from is HOST:PORT or a URL.
func pickerPage(from, page string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if !strings.Contains(from, "://") {
		from = "http://" + from
	}
	err := serve.FetchJSON(ctx, http.DefaultClient, http.MethodGet, strings.TrimSuffix(from, "/")+page, nil, maxPage,
		into)
	var unreachable *url.Error
	if errors.As(err, &unreachable) {
		return exit.Hint(exit.Environment, err, "is the endpoint picker running, and is this its metrics address? "+
			"--from FILE reads a recording")
	}
	return exit.Hint(exit.Environment, err, "expected the metrics address of an endpoint picker of windtunnel")
}
