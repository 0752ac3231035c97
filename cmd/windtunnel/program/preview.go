package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/report/recording"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/preview"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
)

// previewCmd decides about a request for a saved or live state, without sending it.
type previewCmd struct {
	Config []string `sep:"none" placeholder:"FILE" help:"EndpointPickerConfig. Several are shown side by side."`

	State   string            `placeholder:"FILE" help:"A saved state of the pool, as described below."`
	From    []string          `sep:"none" placeholder:"RECORDING|HOST:PORT" help:"The state that a recording, or several that continue each other, or a running picker has."`
	At      *time.Duration    `placeholder:"12.3s" help:"Time in the recording. Left out: its end."`
	Pool    string            `placeholder:"NAME" help:"The pool in a recording, or one of its pickers (NAME-epp-0)."`
	Request string            `required:"" placeholder:"FILE" help:"The request's body, JSON; - for standard input."`
	Path    string            `default:"/v1/chat/completions" help:"The request's path."`
	Header  map[string]string `placeholder:"NAME=VALUE" help:"A header of the request. Repeatable."`
	Alpha   bool              `name:"allow-experimental-plugins" help:"Admit plug-ins of Alpha stability."`
	Seed    uint64            `help:"Seed of all random choices."`
	textOrJSON
}

func (previewCmd) Help() string {
	return `Shows what the endpoint picker would do with a request, also with another configuration. Nothing is sent and
nothing is changed. From a recording, the recorded configuration is shown, too.

Examples:
  windtunnel preview --config a.yaml --state state.yaml --request body.json
  windtunnel preview --config a.yaml --config b.yaml --state state.yaml --request body.json
  windtunnel preview --config b.yaml --from 127.0.0.1:9090 --request body.json    # the pool as it is now
  windtunnel preview --from run.ndjson.gz --at 12.3s --request body.json          # with prefixes and sessions
  windtunnel preview --from run.ndjson.gz --at 12.3s --config b.yaml --request body.json

A state lists endpoints: name, labels, waiting, running, kv, lora, custom, ready, sessions, qps, maxQps, and
served requests that fill prefix histories and sessions; those with held: true are still in flight.
/debug/state of a running endpoint picker is one, without prompts.`
}

// maxStateBytes bounds a state file, and a request's body, in bytes.
const maxStateBytes = 64 << 20

// Run prints the decisions side by side, then each in full.
func (c *previewCmd) Run(o *outside) error {
	if err := c.check(); err != nil {
		return exit.With(exit.Usage, err)
	}
	state, err := c.state()
	if err != nil {
		return err
	}
	body, err := o.Read(c.Request, maxStateBytes)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	r := &preview.Request{Path: c.Path, Headers: map[string]string{}, Body: string(body)}
	for k, v := range c.Header {
		r.Headers[strings.ToLower(k)] = v
	}
	var columns []preview.Column
	if state != nil {
		columns, err = c.now(state, r)
	} else {
		columns, err = c.then(o, r)
	}
	if err != nil {
		return err
	}
	if len(columns) > 1 && !c.json() {
		if err := preview.WriteSideBySide(o.Stdout, columns); err != nil {
			return err
		}
	}
	for i := range columns {
		if len(columns) > 1 && !c.json() {
			fmt.Fprintf(o.Stdout, "\n== %s\n", columns[i].Name)
		}
		if err := c.show(o, columns[i].Explanation); err != nil {
			return err
		}
	}
	return nil
}

func (c *previewCmd) check() error {
	switch {
	case (c.State == "") == (len(c.From) == 0):
		return errors.New("expected --state or --from, for the picker's state")
	case c.recorded():
	case len(c.From) > 1:
		return fmt.Errorf("--from: found %d; expected one running endpoint picker, or recordings", len(c.From))
	case len(c.Config) == 0:
		return errors.New("missing flags: --config=FILE; a state does not name its configuration")
	case c.At != nil:
		return errors.New("--at is a time in a recording (--from)")
	case c.Pool != "":
		return errors.New("--pool is a pool of a recording (--from)")
	}
	if c.At != nil && *c.At < 0 {
		return fmt.Errorf("--at: found %s; expected a time from 0s on", *c.At)
	}
	return nil
}

// recorded reports whether the picker's state comes from recordings.
func (c *previewCmd) recorded() bool {
	return len(c.From) > 0 && (len(c.From) > 1 || !isAddress(c.From[0]))
}

// state returns the saved or running picker's state, nil for recordings.
func (c *previewCmd) state() (*preview.State, error) {
	switch {
	case c.State != "":
		return readState(c.State)
	case c.recorded():
		return nil, nil
	}
	return runningState(c.From[0])
}

// now returns the decision of each configuration in a state.
func (c *previewCmd) now(state *preview.State, r *preview.Request) (columns []preview.Column, err error) {
	for _, name := range c.Config {
		e, err := c.decide(name, state, r)
		if err != nil {
			return nil, err
		}
		columns = append(columns, preview.Column{Name: filepath.Base(name), Explanation: e})
	}
	return columns, nil
}

// then returns the decisions of the recorded configuration, and of others, at a time of a recording.
func (c *previewCmd) then(o *outside, r *preview.Request) (columns []preview.Column, err error) {
	p := &inputlog.Player{Registry: plugins.Builtin(), Pool: c.Pool,
		Options: func(x *picker.Options) { x.Detail = true }}
	at := machine.Time(0)
	if c.At != nil {
		at = machine.FromDuration(*c.At)
		p.Until = max(at, 1)
	}
	for _, name := range c.Config {
		other, err := readOther(name)
		if err != nil {
			return nil, err
		}
		p.Others = append(p.Others, other)
	}
	if err := eachInput(o, c.From, p.Line); err != nil && !errors.Is(err, inputlog.ErrEnough) {
		return nil, recording.InputError(err)
	}
	if pools := p.Pools(); len(pools) > 1 && c.Pool == "" {
		return nil, exit.Errorf(exit.Usage, "the recording has the pools %s; expected --pool with one of them",
			strings.Join(pools, ", "))
	}
	pick := func(name string, m *epp.Machine, notes []string) error {
		if m == nil {
			return exit.Errorf(exit.Input, "%s: at that time lines are missing, or nothing was recorded yet%s",
				c.From[len(c.From)-1], c.ofPool())
		}
		e, err := explain(m.Picker(), m.Now(), r)
		if err != nil {
			return err
		}
		e.Notes = notes
		columns = append(columns, preview.Column{Name: name, Explanation: e})
		return nil
	}
	if err := pick("recorded", p.Machine(at), nil); err != nil {
		return nil, err
	}
	for _, other := range p.Others {
		if err := pick(filepath.Base(other.Name), p.Of(other, at), other.Notes); err != nil {
			return nil, err
		}
	}
	return columns, nil
}

// ofPool names --pool in an error.
func (c *previewCmd) ofPool() string {
	if c.Pool == "" {
		return ""
	}
	return ", of a pool or picker " + c.Pool
}

// readState reads a saved state of a pool.
func readState(file string) (*preview.State, error) {
	text, err := files.Read(file, maxStateBytes)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	s, err := preview.ReadState(file, text)
	return s, exit.With(exit.Input, err)
}

// runningState reads the state of a running endpoint picker's pool.
func runningState(address string) (*preview.State, error) {
	var page json.RawMessage
	if err := pickerPage(address, "/debug/state", &page); err != nil {
		return nil, err
	}
	s, err := preview.ReadState(address, page)
	return s, exit.With(exit.Input, err)
}

// isAddress reports whether --from names a running part: it has a colon, and there is no such file.
func isAddress(from string) bool {
	_, err := os.Stat(from)
	return strings.Contains(from, ":") && errors.Is(err, fs.ErrNotExist)
}

// decide returns one configuration's decision. A refusal is a decision, too.
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
	e, err := explain(p, 0, r)
	if err != nil {
		return nil, err
	}
	e.Notes = preview.Unknown(p, state)
	return e, nil
}

// explain returns a picker's decision about a request.
func explain(p *picker.Picker, now machine.Time, r *preview.Request) (*picker.Explanation, error) {
	d, err := preview.Pick(p, now, r, "preview")
	var refused *apierror.Error
	switch {
	case errors.As(err, &refused):
		return &picker.Explanation{Request: "preview", Path: r.Path, Error: refused.Error(), Status: refused.Status},
			nil
	case err != nil:
		return nil, err
	}
	return d.Explain(), nil
}
