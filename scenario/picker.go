package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// PickerConfig is an EndpointPickerConfig, in any of the forms that the
// picker knows. A zero PickerConfig is the picker's default.
type PickerConfig struct {
	// File is where the text stands, for messages: the scenario itself, or the
	// file that it names. Lines in the text are that file's lines.
	File string
	Text []byte

	inline strictyaml.Value // where the scenario itself has it
	// What only some pickers tell of themselves.
	flowControl, inflight bool
}

// String is where the text stands.
func (c PickerConfig) String() string { return c.File }

// Given reports whether the scenario configures the picker.
func (c *PickerConfig) Given() bool { return c.File != "" }

// ReadYAML takes a mapping as the configuration itself and text as the path of
// its file.
func (c *PickerConfig) ReadYAML(v strictyaml.Value) strictyaml.Problems {
	switch text := v.Scalar(); {
	case v.IsMapping():
		c.File, c.Text, c.inline = v.File(), v.Excerpt(), v.Kubernetes()
	case text != "":
		c.File = text
	default:
		return strictyaml.Problems{v.Problem(v.Found(), "an EndpointPickerConfig, or the path of its file", "")}
	}
	return nil
}

// Read is the configuration; what is wrong with it is told by whoever builds a
// picker of it.
func (c *PickerConfig) Read() (*config.Config, error) { return config.Read(c.File, c.Text) }

// checkPicker builds the picker once, to tell what is wrong with its
// configuration before anything starts.
func (s *Scenario) checkPicker(p *Pool, path string) Problems {
	c := &p.EPP.Config
	read := c.Read
	if c.inline.Given() {
		read = func() (*config.Config, error) { return config.From(c.inline) }
	}
	cfg, err := read()
	var k *picker.Picker
	if err == nil {
		k, err = picker.New(cfg, plugins.Builtin(), picker.Options{})
	}
	at := s.place(path)
	if err != nil {
		problems := at.Told(err)
		for i, p := range problems { // of a file of its own, paths begin there
			if !strings.HasPrefix(p.Path, path) {
				problems[i].Path = strings.TrimSuffix(path+"."+p.Path, ".")
			}
		}
		return problems
	}
	c.flowControl = k.FlowControl()
	c.inflight = slices.ContainsFunc(k.Plugins(),
		func(pl picker.Plugin) bool { return pl.Type() == dataproducer.TypeInflight })
	return append(s.checkParsed(k, path), s.checkPrecise(p, k, path)...)
}

// checkPrecise holds a pool's precise-prefix producers against its model
// servers: what they do not publish the picker never finds.
func (s *Scenario) checkPrecise(p *Pool, k *picker.Picker, path string) Problems {
	for _, pl := range k.Plugins() {
		if dataproducer.Precise(pl) != nil && !p.ModelServer.KVEvents.Published() && len(p.Endpoints) == 0 {
			return Problems{s.problem(path,
				fmt.Sprintf("the plugin %s waits for KV events, and the model servers publish none", pl.Name()),
				"modelServer.kvEvents with a format, such as kvEvents: {format: msgpack}")}
		}
	}
	return nil
}
