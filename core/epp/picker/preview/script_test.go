package preview

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// The scripts under testdata are named after the document whose worked
// examples they play: a configuration, a state of the pool, and requests.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var cfg string
		var answers []picker.Answer
		var state *State
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "config":
				cfg = d.Input
				c, err := config.Read("epp.yaml", []byte(cfg))
				if err != nil {
					return "refused: " + err.Error()
				}
				p, err := picker.New(c, plugins.Builtin(), picker.Options{AllowExperimental: true})
				if err != nil {
					return "refused: " + knownTypes.ReplaceAllString(err.Error(), "known types are [...]")
				}
				return strings.Join(p.Warnings, "\n")
			case "state":
				s, err := ReadState("state.yaml", []byte(d.Input))
				if err != nil {
					return "refused: " + err.Error()
				}
				state = s
				return ""
			case "answer": // of an outside service, to every request that follows
				var plugin, key string
				d.ScanArgs(t, "plugin", &plugin)
				d.ScanArgs(t, "key", &key)
				answers = append(answers, picker.Answer{Plugin: plugin, Key: key, Value: []byte(d.Input)})
				return ""
			case "request":
				return request(t, d, cfg, state, answers)
			}
			return fmt.Sprintf("unknown command %q", d.Cmd)
		})
	})
}

// knownTypes is a list that grows with every plug-in.
var knownTypes = regexp.MustCompile(`known types are \[.*\]`)

func request(t *testing.T, d *datadriven.TestData, text string, s *State, answers []picker.Answer) string {
	c, err := config.Read("epp.yaml", []byte(text))
	if err != nil {
		return err.Error()
	}
	p, err := Build(c, plugins.Builtin(), picker.Options{AllowExperimental: true}, s)
	if err != nil {
		return err.Error()
	}
	r := &Request{Body: d.Input, Headers: map[string]string{}}
	for _, a := range d.CmdArgs {
		if a.Key != "path" && len(a.Vals) == 1 {
			r.Headers[a.Key] = a.Vals[0]
		}
	}
	if d.HasArg("path") {
		d.ScanArgs(t, "path", &r.Path)
	}
	if r.Body == "" {
		r.Body = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	}
	dec, err := PickAnswered(p, 0, r, "r", answers)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	if err := dec.Explain().WriteTable(&b, 0); err != nil {
		return err.Error()
	}
	return b.String()
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte("endpoints:\n- {name: a, waiting: 1, kv: 0.5, labels: {a: b}, lora: {x: 1}, blocks: [1]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var problems strictyaml.Problems
		if _, err := ReadState("state.yaml", data); err != nil && !errors.As(err, &problems) {
			t.Error(err)
		}
	})
}
