package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/picker/preview"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// explainCmd asks a running endpoint picker why a request went where it went.
type explainCmd struct {
	Request string `arg:"" help:"The request's x-request-id."`
	EPP     string `name:"epp" default:"127.0.0.1:9090" placeholder:"HOST:PORT" help:"Where the endpoint picker serves its metrics."`
	JSON    bool   `name:"json" help:"Print the whole record as JSON."`
}

func (explainCmd) Help() string {
	return `Shows candidates, what each filter removed, the raw and weighted score of each
scorer for each endpoint, ties, and the choice.

  windtunnel explain 5f1c2c1e-0e5c-4b0e-8a3f-1f0a7f3f1c11`
}

// Run prints the newest decision for the request.
func (c *explainCmd) Run(o *outside) error {
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + c.EPP + "/debug/decisions?limit=1&request=" + url.QueryEscape(c.Request))
	if err != nil {
		return exit.Hint(exit.Environment, err, "is the endpoint picker running, and is --epp its metrics address?")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	var list []*picker.Explanation
	if err := json.Unmarshal(text, &list); resp.StatusCode != http.StatusOK || err != nil {
		return exit.With(exit.Environment, fmt.Errorf("%s answered %d, which is not a list of decisions", c.EPP, resp.StatusCode))
	}
	if len(list) == 0 {
		return exit.Hint(exit.Input, fmt.Errorf("the endpoint picker remembers no request %s", c.Request), "it keeps the newest ones only; see --decisions of windtunnel epp")
	}
	return show(o, list[0], c.JSON)
}

func show(o *outside, e *picker.Explanation, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(o.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(e)
	}
	return e.WriteTable(o.Stdout)
}

// previewCmd decides for a saved state, without sending anything.
type previewCmd struct {
	Config  []string          `name:"config" required:"" sep:"none" placeholder:"FILE" help:"EndpointPickerConfig; several are shown one after the other."`
	State   string            `name:"state" required:"" placeholder:"FILE" help:"The pool: endpoints with their figures, and what they have served."`
	Request string            `name:"request" required:"" placeholder:"FILE" help:"The request's body, JSON."`
	Path    string            `name:"path" default:"/v1/chat/completions" help:"The request's path."`
	Header  map[string]string `name:"header" placeholder:"NAME=VALUE" help:"A header of the request; may be given several times."`
	Alpha   bool              `name:"allow-experimental-plugins" help:"Admit plug-ins of Alpha stability."`
	JSON    bool              `name:"json" help:"Print the whole record as JSON."`
	Seed    uint64            `name:"seed" help:"Key of all random choices."`
}

func (previewCmd) Help() string {
	return `What would the endpoint picker do with this request? And with another
configuration? Nothing is sent and nothing is changed.

  windtunnel preview --config a.yaml --config b.yaml --state state.yaml --request body.json

A state lists endpoints: name, labels, waiting, running, kv, lora, custom, and
served requests that fill prefix histories.`
}

// Run prints one explained decision per configuration.
func (c *previewCmd) Run(o *outside) error {
	text, err := os.ReadFile(c.State)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	state, err := preview.ReadState(text)
	if err != nil {
		return exit.With(exit.Input, fmt.Errorf("%s: %w", c.State, err))
	}
	body, err := os.ReadFile(c.Request)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	headers := map[string]string{}
	for k, v := range c.Header {
		headers[strings.ToLower(k)] = v
	}
	for i, name := range c.Config {
		text, err := os.ReadFile(name)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		cfg, err := config.Read(text)
		if err != nil {
			return exit.With(exit.Input, fmt.Errorf("%s: %w", name, err))
		}
		p, err := preview.Build(cfg, plugins.Builtin(), picker.Options{Seed: c.Seed, AllowExperimental: c.Alpha}, state)
		if err != nil {
			return exit.With(exit.Input, fmt.Errorf("%s: %w", name, err))
		}
		if len(c.Config) > 1 && !c.JSON {
			if i > 0 {
				fmt.Fprintln(o.Stdout)
			}
			fmt.Fprintf(o.Stdout, "== %s\n", name)
		}
		d, err := preview.Pick(p, 0, &preview.Request{Path: c.Path, Headers: headers, Body: string(body)}, "preview")
		var refused *picker.Error
		switch {
		case errors.As(err, &refused):
			fmt.Fprintf(o.Stdout, "refused with %d: %s\n", refused.Code.Status(), refused.Error())
			continue
		case err != nil:
			return err
		}
		if err := show(o, d.Explain(), c.JSON); err != nil {
			return err
		}
	}
	return nil
}
