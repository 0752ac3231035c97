package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/picker/preview"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
)

// previewCmd decides for a saved or live state, without sending anything.
type previewCmd struct {
	Config  []string          `name:"config" required:"" sep:"none" placeholder:"FILE" help:"EndpointPickerConfig; several are shown side by side."`
	State   string            `name:"state" required:"" placeholder:"FILE|HOST:PORT" help:"The pool: endpoints with their figures, and what they have served; or the metrics address of a running endpoint picker."`
	Request string            `name:"request" required:"" placeholder:"FILE" help:"The request's body, JSON; - for standard input."`
	Path    string            `name:"path" default:"/v1/chat/completions" help:"The request's path."`
	Header  map[string]string `name:"header" placeholder:"NAME=VALUE" help:"A header of the request; may be given several times."`
	Alpha   bool              `name:"allow-experimental-plugins" help:"Admit plug-ins of Alpha stability."`
	Seed    uint64            `name:"seed" help:"Key of all random choices."`
	shownAs
}

func (previewCmd) Help() string {
	return `What would the endpoint picker do with this request? And with another
configuration? Nothing is sent and nothing is changed.

Examples:
  windtunnel preview --config a.yaml --state state.yaml --request body.json
  windtunnel preview --config a.yaml --config b.yaml --state state.yaml --request body.json
  windtunnel preview --config b.yaml --state 127.0.0.1:9090 --request body.json   # the pool as it is now

A state lists endpoints: name, labels, waiting, running, kv, lora, custom, ready,
sessions, qps, maxQps, and served requests that fill prefix histories and
sessions; those with held: true are still in flight. /debug/state of a running
endpoint picker is one, without prompts.`
}

// maxStateBytes bounds a state file, and a request's body.
const maxStateBytes = 64 << 20

// Run prints the decisions side by side, then each in full.
func (c *previewCmd) Run(o *outside) error {
	state, err := c.state()
	if err != nil {
		return err
	}
	body, err := c.body(o)
	if err != nil {
		return err
	}
	r := &preview.Request{Path: c.Path, Headers: map[string]string{}, Body: string(body)}
	for k, v := range c.Header {
		r.Headers[strings.ToLower(k)] = v
	}
	var columns []preview.Column
	for _, name := range c.Config {
		e, err := c.decide(name, state, r)
		if err != nil {
			return err
		}
		columns = append(columns, preview.Column{Name: filepath.Base(name), Explanation: e})
	}
	if len(columns) > 1 && !c.json() {
		if err := preview.WriteSideBySide(o.Stdout, columns); err != nil {
			return err
		}
	}
	for i := range columns {
		if len(columns) > 1 && !c.json() {
			fmt.Fprintf(o.Stdout, "\n== %s\n", c.Config[i])
		}
		if err := c.show(o, columns[i].Explanation); err != nil {
			return err
		}
	}
	return nil
}

func (c *previewCmd) state() (*preview.State, error) {
	text, err := files.Read(c.State, maxStateBytes)
	if errors.Is(err, os.ErrNotExist) && strings.Contains(c.State, ":") {
		var page json.RawMessage
		if err := getJSON(c.State, "/debug/state", &page); err != nil {
			return nil, err
		}
		text, err = page, nil
	}
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	s, err := preview.ReadState(c.State, text)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	return s, nil
}

func (c *previewCmd) body(o *outside) ([]byte, error) {
	if c.Request == "-" {
		return files.ReadFrom("standard input", o.Stdin, maxStateBytes)
	}
	body, err := files.Read(c.Request, maxStateBytes)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	return body, nil
}

// decide is one configuration's decision. A refusal is a decision, too.
func (c *previewCmd) decide(name string, state *preview.State, r *preview.Request) (*picker.Explanation, error) {
	text, err := files.Read(name, maxStateBytes)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	cfg, err := config.Read(name, text)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	p, err := preview.Build(cfg, plugins.Builtin(), picker.Options{Seed: c.Seed, AllowExperimental: c.Alpha}, state)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	d, err := preview.Pick(p, 0, r, "preview")
	var refused *apierror.Error
	switch {
	case errors.As(err, &refused):
		return &picker.Explanation{Request: "preview", Path: r.Path, Error: refused.Error(), Status: refused.Status}, nil
	case err != nil:
		return nil, err
	}
	return d.Explain(), nil
}
