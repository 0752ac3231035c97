// Package scenario reads the file that a user writes: one YAML file with the pools of model servers, their endpoint
// pickers, and the requests to send. `windtunnel run` plays it in wall time and `windtunnel sim` in virtual time. Both
// read nothing else. Begin to read at Scenario; Plan compiles one for the drivers.
//
// Reading is strict. The error for an unknown field, a wrong type, a missing unit or a value out of range has the file,
// the line, the column, the field's path, what was found and what was expected. One error lists all mistakes of a file.
// Load sets every default and checks every rule, so that later code does not check again.
//
// The JSON Schema for editors comes from the same types (package schema).
package scenario

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

// Version and Kind head every scenario file.
const (
	Version = "windtunnel/v1alpha1"
	Kind    = "Scenario"
)

// MaxFileBytes is the size of the largest scenario file, and of the largest file that a scenario names.
const MaxFileBytes = 1 << 20

// Scenario is a whole scenario file.
type Scenario struct {
	// Always windtunnel/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Always Scenario.
	Kind string `json:"kind"`
	// The scenario's name in headings and reports.
	Name string `json:"name"`
	// The seed of all random values: the same seed gives the same run.
	Seed uint64 `json:"seed" min:"0" default:"1"`
	// Kubernetes manifests, a file or a directory, relative to the scenario's own directory. Requests take their
	// Gateway's routes to their InferencePools, under their policies. The scenario's pools then override fields of the
	// InferencePools of the same names.
	Manifests string `json:"manifests"`
	// The pools of model servers, each with its own endpoint picker.
	Pools []Pool `json:"pools" min:"1" max:"64"`
	// The requests that the simulated client sends.
	Workload Workload `json:"workload"`
	// The times from one part to the next in virtual time.
	Hops Hops `json:"hops"`
	// The ports on which a live run listens.
	Ports Ports `json:"ports"`
	// The expected results. A run that misses one of them fails.
	Expectations Expectations `json:"expectations"`
	// The search of windtunnel tune, where its flags leave it out.
	Tune limit.Tune `json:"tune"`

	// File is the scenario's file, for messages.
	File string `json:"-"`

	root strictyaml.Value // the file's fields, for the places of mistakes
	read []string         // see Files

	gateway *Gateway                    // of the manifests
	said    map[string]strictyaml.Value // the fields that the manifests set, by path

	recorded []workload.Recorded // see SendAgain
	untimed  bool                // recorded has no times: the workload's arrivals apply
	paced    bool                // a rate sets the speed of recorded
	assumed  []string            // see Assumed
}

// SendAgain replaces the workload's requests by requests like recorded ones, at the recorded times. A request for a
// model that no pool serves asks for the workload's model instead; strangers counts such requests by their model.
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

// Files returns the paths of the scenario's file and of all files that it names. A run must not write to them.
func (s *Scenario) Files() []string { return s.read }

//go:embed embedded.yaml
var embedded []byte

// EmbeddedFile is the name of the built-in scenario in messages.
const EmbeddedFile = "embedded.yaml"

// DeployedFile is the name, in messages, of the scenario of one llm-d pool that flags change. It is the command that
// prints the scenario.
const DeployedFile = "windtunnel scenario show"

//go:embed deployed.yaml
var deployed []byte

//go:embed templates/*.yaml
var templates embed.FS

// Template returns the text of a commented scenario to start from: plain, pd, kv-aware, autoscaling or held. The text
// is nil for every other name.
func Template(name string) []byte {
	text, _ := templates.ReadFile("templates/" + name + ".yaml")
	return text
}

// Builtin returns a built-in scenario with its name in messages: EmbeddedFile for "", or DeployedFile. The text is nil
// for every other file.
func Builtin(file string) (name string, text []byte) {
	switch file {
	case "":
		return EmbeddedFile, embedded
	case DeployedFile:
		return DeployedFile, deployed
	}
	return file, nil
}

// Embedded returns the built-in scenario: document 000's held-open request, with a short prefill. `windtunnel run`
// plays it by default.
func Embedded() *Scenario {
	s, err := Parse(EmbeddedFile, embedded)
	if err != nil {
		panic(err) // the tests read it
	}
	return s
}

// Load reads a scenario file, with some fields set to other values. It returns mistakes as Problems.
func Load(path string, settings ...Setting) (*Scenario, error) {
	data, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	s, err := Parse(path, data, settings...)
	if err == nil {
		s.read = append(s.read, path)
	}
	return s, err
}

// ReadText reads a scenario's file. The error of a file of another kind says what takes it.
func ReadText(path string) ([]byte, error) {
	data, err := files.Read(path, MaxFileBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = cmp.Or(otherKind(path, files.KindOfPath(path)), err)
	}
	return data, err
}

// otherKind returns the error of a file that is not a scenario, nil if it may be one.
func otherKind(file string, k files.Kind) error {
	if k.Is == "" || k.Is == files.Scenario {
		return nil
	}
	return Problems{{File: file, Found: "found " + k.Is, Expected: files.Scenario, Hint: k.Use}}
}

// Parse reads a scenario from memory. file is its name in messages, and paths in the scenario are relative to its
// directory. With settings, mistakes have no lines, since the text is not the file's.
func Parse(file string, data []byte, settings ...Setting) (*Scenario, error) {
	if len(settings) > 0 {
		return parseWith(file, data, settings)
	}
	if err := otherKind(file, files.KindOf(data)); err != nil {
		return nil, err
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
	c := &checker{s, append(s.root.Decode(s), doc.Problems()...)}
	dir := filepath.Dir(file)
	for i, step := range []func(){func() { c.readGateway(dir) }, c.check, func() { c.readFiles(dir) }, c.checkEngines} {
		if len(c.problems) == 0 {
			step()
		} else if i == 0 && s.APIVersion != "" && s.Kind != "" {
			c.checkKind() // another kind or version explains unknown fields
		}
	}
	if err := c.problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Pool returns the pool with this name, or nil.
func (s *Scenario) Pool(name string) *Pool {
	for i := range s.Pools {
		if s.Pools[i].Name == name {
			return &s.Pools[i]
		}
	}
	return nil
}

// readFiles reads and checks the files that the scenario names.
func (s *checker) readFiles(dir string) {
	s.readTrace(dir)
	for i := range s.Pools {
		p, path := &s.Pools[i], fmt.Sprintf("pools[%d]", i)
		for _, k := range p.kinds(path) {
			s.readHardware(p, &k, dir)
		}
		s.readTokenizer(p, path+".modelServer", dir)
		s.readPredictor(&p.Predictor, path+".predictor", dir)
		c := &p.EPP.Config
		if c.Given() && c.Text == nil {
			s.readFile(path+".epp.config", dir, c.File,
				"the path of an EndpointPickerConfig file, from the scenario's own directory", MaxFileBytes, c.take)
			switch k := files.KindOf(c.Text); k.Is {
			case "", files.Picker, files.Objects, files.Scenario: // the picker's reader knows these
			default:
				p := s.problem(path+".epp.config", c.File+" is "+k.Is, files.Picker)
				p.Hint = k.Use
				s.add(p)
				continue
			}
		}
		if c.Text != nil {
			s.checkPicker(p, path+".epp.config")
		}
		s.readManifests(p, path, dir)
	}
}

// beside resolves a path that is relative to the scenario's own directory.
func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readFile reads a file that a field names, if it names one, and parses it. what describes the expected file, "" where
// the errors do.
func (s *checker) readFile(field, dir, name, what string, most int64, parse func(file string, text []byte) error) {
	if name == "" {
		return
	}
	file := beside(dir, name)
	text, err := files.Read(file, most)
	if err == nil {
		s.read = append(s.read, file)
		err = parse(file, text)
	}
	switch {
	case err == nil:
	case what == "":
		s.bad(field, err.Error(), "")
	default:
		s.bad(field, fmt.Sprintf("%q: %v", name, err), what)
	}
}
