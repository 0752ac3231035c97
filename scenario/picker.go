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

// PickerConfig is an EndpointPickerConfig, in any form that the picker reads. The zero value is the picker's default.
type PickerConfig struct {
	// File is the file that holds the text, for messages: the scenario itself, or the file that it names. Lines in the
	// text are that file's lines.
	File string
	Text []byte

	inline                strictyaml.Value // the configuration in the scenario itself, if it is there
	flowControl, inflight bool             // the picker serves metrics of flow control, of requests in flight
}

// String returns the file that holds the text.
func (c PickerConfig) String() string { return c.File }

// Given reports whether the scenario configures the picker.
func (c *PickerConfig) Given() bool { return c.File != "" }

// ReadYAML reads a mapping as the configuration itself, and a text as the path of its file.
func (c *PickerConfig) ReadYAML(v strictyaml.Value) (out strictyaml.Problems) {
	if c.File, c.Text, out = objectOrPath(v, "an EndpointPickerConfig"); c.Text != nil {
		c.inline = v.Kubernetes()
	}
	return out
}

// objectOrPath reads a mapping as an object of the given kind, and a text as the path of its file.
func objectOrPath(v strictyaml.Value, kind string) (file string, text []byte, out strictyaml.Problems) {
	if v.IsMapping() {
		return v.File(), v.Excerpt(), nil
	}
	if file = v.Scalar(); file == "" {
		out = strictyaml.Problems{v.Problem(v.Found(), kind+", or the path of its file", "")}
	}
	return file, nil, out
}

// take sets the configuration to a file's.
func (c *PickerConfig) take(file string, text []byte) error {
	c.File, c.Text = file, text
	return nil
}

// Read parses the configuration. picker.New checks it.
func (c *PickerConfig) Read() (*config.Config, error) { return config.Read(c.File, c.Text) }

// checkPicker builds the picker once, so that mistakes in its configuration are found before anything starts.
func (s *checker) checkPicker(p *Pool, path string) {
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
	if err != nil {
		for _, p := range s.place(path).ProblemsOf(err) {
			if !strings.HasPrefix(p.Path, path) { // it is relative to a file of its own
				p.Path = strings.TrimSuffix(path+"."+p.Path, ".")
			}
			s.add(p)
		}
		return
	}
	c.flowControl = k.FlowControl()
	c.inflight = slices.ContainsFunc(k.Plugins(),
		func(pl picker.Plugin) bool { return pl.Type() == dataproducer.TypeInflight })
	s.checkParsed(k, path)
	s.checkPrecise(p, k, path)
	s.hintPrefill(p, cfg, path)
}

// hintPrefill notes that a configuration with a prefill profile finds no prefill servers, or servers no such profile,
// and what adds them.
func (s *checker) hintPrefill(p *Pool, cfg *config.Config, path string) {
	pool := strings.TrimSuffix(path, ".epp.config")
	profile := slices.ContainsFunc(cfg.SchedulingProfiles,
		func(f config.Profile) bool { return f.Name == dataproducer.PrefillProfile })
	switch {
	case len(p.Endpoints) > 0 || profile == (p.Disaggregation.PrefillReplicas > 0):
	case profile:
		sets := ""
		if p.Sidecar == NoSidecar {
			sets = fmt.Sprintf("--set '%s.sidecar=routing' ", pool)
		}
		s.assume(fmt.Sprintf("%s has a prefill profile, and the pool has no prefill servers, so that each server "+
			"prefills what it decodes; %s--set '%s.disaggregation.prefillReplicas=2' adds two", path, sets, pool))
	case p.Sidecar == RoutingSidecar && p.Disaggregation.SessionCache == 0: // else the sidecar chooses the servers
		s.assume(fmt.Sprintf("%s has no prefill profile, so that no request reaches the pool's prefill servers; "+
			"--set '%s=null' takes the built-in configuration for prefill and decode", path, path))
	}
}

// checkPrecise checks that a pool's model servers publish what its precise-prefix producers need.
func (s *checker) checkPrecise(p *Pool, k *picker.Picker, path string) {
	for _, pl := range k.Plugins() {
		if dataproducer.Precise(pl) != nil && !p.ModelServer.KVEvents.Published() && len(p.Endpoints) == 0 {
			s.bad(path, fmt.Sprintf("the plugin %s waits for KV events, and the model servers publish none", pl.Name()),
				"modelServer.kvEvents with a format, such as kvEvents: {format: msgpack}")
			return
		}
	}
}
