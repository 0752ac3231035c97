// Package scenario is what a user writes: one YAML file that says which pools
// of model servers there are, how the endpoint picker treats them, and which
// requests are sent. `windtunnel run` plays it in wall time and `windtunnel
// sim` in virtual time; both read nothing else.
//
// Reading is strict. An unknown field, a wrong type, a unit that is missing or
// a value out of range is told with file, line, column, the field's path, what
// was found and what was expected, and all of a file's mistakes are told at
// once. What Load returns has every default filled in and every rule checked,
// so that nobody behind it has to ask again.
//
// The JSON Schema that editors use comes from the same types (Schema).
package scenario

import (
	_ "embed"
	"fmt"
	"io"
	"path/filepath"
	"reflect"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/files"
)

// Version and Kind head every scenario file.
const (
	Version = "windtunnel/v1alpha1"
	Kind    = "Scenario"
)

// MaxFileBytes is the largest scenario file, and the largest file that one
// refers to.
const MaxFileBytes = 1 << 20

// Scenario is a whole scenario file.
type Scenario struct {
	// Always windtunnel/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Always Scenario.
	Kind string `json:"kind"`
	// What the scenario is called in headings and reports.
	Name string `json:"name"`
	// All that is random comes from this number: the same seed gives the same run.
	Seed uint64 `json:"seed" min:"0"`
	// Kubernetes manifests, a file or a directory, counted from the scenario's own directory: requests take their
	// Gateway's routes to their InferencePools, under their policies. Pools then say more of the InferencePools of the
	// same names, and what they say counts.
	Manifests string `json:"manifests"`
	// The pools of model servers, each with its own endpoint picker.
	Pools []Pool `json:"pools" min:"1" max:"64"`
	// The requests that the simulated client sends.
	Workload Workload `json:"workload"`
	// What it takes to get from one part to the next, in virtual time; in wall time it takes what it takes.
	Hops Hops `json:"hops"`
	// The ports on which a live run listens, where they matter.
	Ports Ports `json:"ports"`
	// What the run must come to; a run that misses one of these fails.
	Expectations Expectations `json:"expectations"`

	// File is where the scenario came from, for messages.
	File string `json:"-"`
	// root tells problems found later (overrides, drivers) the line of a field.
	root strictyaml.Value
	read []string // see Files

	gateway *Gateway                    // of the manifests
	said    map[string]strictyaml.Value // by the manifests, by the fields' paths

	recorded []workload.Recorded // see SendAgain
	untimed  bool                // they come as the workload says
	paced    bool                // a rate says how fast they come
	assumed  []string
}

// SendAgain has requests sent that are like recorded ones, in place of the
// workload's, at the times at which those came. Those that ask for a model that nobody here
// serves ask for the workload's; strangers are these models and how many ask for each.
func (s *Scenario) SendAgain(list []workload.Recorded) (strangers map[string]int) {
	strangers = map[string]int{}
	for i := range list {
		m := list[i].Model
		if _, ok := s.served(m); !ok && m != "" {
			strangers[m]++
			list[i].Model = ""
		}
	}
	s.recorded, s.Workload.Requests, s.Workload.Concurrency = list, len(list), len(list)
	return strangers
}

// Files are the paths of the files that the scenario was read from: itself and
// those that it names. Nothing may be written there while it is played.
func (s *Scenario) Files() []string { return s.read }

func (s *Scenario) defaults() { s.Seed = 1 }

//go:embed embedded.yaml
var embedded []byte

// EmbeddedFile is the name under which the built-in scenario appears in
// messages.
const EmbeddedFile = "embedded.yaml"

// EmbeddedText is the built-in scenario as a file to start one's own from.
func EmbeddedText() []byte { return append([]byte(nil), embedded...) }

// Embedded is the built-in scenario: document 000's held-open request, with a
// prefill short enough for a first look. `windtunnel run` plays it when it is
// given no file.
func Embedded() *Scenario {
	s, err := Parse(EmbeddedFile, embedded)
	if err != nil {
		panic(err) // the tests read it
	}
	return s
}

// Load reads a scenario file, with fields set to other values. Mistakes in it come
// back as Problems.
func Load(path string, settings ...Setting) (*Scenario, error) {
	data, err := files.Read(path, MaxFileBytes)
	if err != nil {
		return nil, err
	}
	s, err := Parse(path, data, settings...)
	if err == nil {
		s.read = append(s.read, path)
	}
	return s, err
}

// Read reads a scenario from a stream; file is its name in messages, and files
// that it refers to are looked for in the working directory.
func Read(file string, from io.Reader, settings ...Setting) (*Scenario, error) {
	data, err := files.ReadFrom(file, from, MaxFileBytes)
	if err != nil {
		return nil, err
	}
	return Parse(file, data, settings...)
}

// Parse reads a scenario from memory; file is its name in messages, and files
// that it refers to are looked for beside it. Mistakes in one with other values are
// told without lines: it is no longer the file that was written.
func Parse(file string, data []byte, settings ...Setting) (*Scenario, error) {
	if len(settings) > 0 {
		return parseWith(file, data, settings)
	}
	doc, err := strictyaml.Parse(data,
		strictyaml.Options{File: file, Prepare: func(p any) { SetDefaults(reflect.ValueOf(p).Elem()) }})
	if err != nil {
		return nil, err
	}
	s := &Scenario{File: file, root: doc.Root()}
	if !s.root.Given() {
		return nil, Problems{s.root.Problem("the file is empty", "apiVersion: "+Version+", kind: "+Kind,
			"`windtunnel scenario show` prints one to start from")}
	}
	problems := append(s.root.Decode(s), doc.Problems()...)
	if len(problems) == 0 {
		problems = s.readGateway(filepath.Dir(file))
	}
	if len(problems) == 0 {
		problems = s.check()
	} else if s.APIVersion != "" && s.Kind != "" {
		// A file of another kind or version is why its fields are unknown.
		problems = append(problems, s.checkKind()...)
	}
	if len(problems) == 0 {
		problems = s.readFiles(filepath.Dir(file))
	}
	if len(problems) == 0 {
		problems = s.checkEngines()
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Pool is the pool with this name, or nil.
func (s *Scenario) Pool(name string) *Pool {
	for i := range s.Pools {
		if s.Pools[i].Name == name {
			return &s.Pools[i]
		}
	}
	return nil
}

// readFiles reads what the scenario refers to, and checks it.
func (s *Scenario) readFiles(dir string) Problems {
	out := s.readTrace(dir)
	for i := range s.Pools {
		for _, k := range s.Pools[i].kinds(fmt.Sprintf("pools[%d]", i)) {
			out = append(out, s.readStepTimes(&k, dir)...)
		}
		out = append(out, s.readTokenizer(&s.Pools[i], fmt.Sprintf("pools[%d].modelServer", i), dir)...)
		out = append(out, s.readPredictor(&s.Pools[i].Predictor, fmt.Sprintf("pools[%d].predictor", i), dir)...)
		c := &s.Pools[i].EPP.Config
		if c.Given() && c.Text == nil {
			out = append(out, s.readPicker(c, fmt.Sprintf("pools[%d].epp.config", i), dir)...)
		}
		if c.Text != nil {
			out = append(out, s.checkPicker(&s.Pools[i], fmt.Sprintf("pools[%d].epp.config", i))...)
		}
		out = append(out, s.readManifests(&s.Pools[i], fmt.Sprintf("pools[%d]", i), dir)...)
	}
	return out
}

// beside is where a path leads that counts from the scenario's own directory.
func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readFile reads a file that the scenario names, what it is, at a field.
func (s *Scenario) readFile(field, dir, name, what string, most int64) (path string, text []byte, out Problems) {
	path = beside(dir, name)
	text, err := files.Read(path, most)
	if err != nil {
		return path, nil, Problems{s.problem(field, fmt.Sprintf("%q: %v", name, err), what)}
	}
	s.read = append(s.read, path)
	return path, text, nil
}

func (s *Scenario) readPicker(c *PickerConfig, field, dir string) (out Problems) {
	c.File, c.Text, out = s.readFile(field, dir, c.File,
		"the path of an EndpointPickerConfig file, from the scenario's own directory", MaxFileBytes)
	return out
}
