package program

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/imports"
)

// loadFlags are the scenario to play, and changes to it.
type loadFlags struct {
	File string `arg:"" optional:"" name:"scenario.yaml" help:"The scenario, - for standard input. Left out: one llm-d pool with --epp-config, --model, --accelerator, --trace or --recording, else the embedded one. windtunnel scenario show prints both."`
	deployFlags
	changeFlags
}

// deployFlags are the settings in which deployments of llm-d differ most.
type deployFlags struct {
	EPPConfig   string `name:"epp-config" placeholder:"FILE" help:"The EndpointPickerConfig of all pools."`
	Model       string `placeholder:"NAME" help:"The model of the pool, for a scenario with one pool."`
	Accelerator string `placeholder:"NAME" help:"The accelerator of all model servers that batch, such as H100."`
	Trace       string `placeholder:"FILE" help:"Send the requests of this trace, in any format of workload.trace."`
	Recording   string `placeholder:"FILE" help:"Send the requests of a recording with a log of a picker's inputs (epp, run and sim --record). Without a scenario, the pool and the picker's configuration are the recorded ones, too."`
}

// file returns the scenario to start from, which may be a built-in one.
func (f *loadFlags) file() string {
	if f.File == "" && f.deployFlags != (deployFlags{}) {
		return scenario.DeployedFile
	}
	return f.File
}

// recorded reads --recording and prints its notes. Without the flag, the recording is empty.
func (f *loadFlags) recorded(o *outside) (*imports.Recording, error) {
	switch {
	case f.Recording == "":
		return &imports.Recording{}, nil
	case f.Trace != "":
		return nil, exit.Errorf(exit.Usage, "found --trace and --recording; expected one of them: each says what is "+
			"sent, and when")
	}
	r, err := imports.ReadRecording(f.Recording, f.file() == scenario.DeployedFile,
		func(line func([]byte) error, event func([]byte)) error {
			return recording.ReadInputsFile(f.Recording, line, event)
		})
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	noteAll(o, r.Notes)
	return r, nil
}

// settings returns the fields that the flags set, behind those of a recording and before those of --set. In a file,
// changeFlags are overrides, unless its text is wanted.
func (f *loadFlags) settings(out []scenario.Setting, set []string, text bool) ([]scenario.Setting, error) {
	file := f.file()
	// add sets a field, and removes the others; a leading minus marks those.
	add := func(flag, value string, paths ...string) {
		for _, path := range paths {
			s := scenario.Setting{Path: path, Value: value, By: flag + " " + value}
			if other, remove := strings.CutPrefix(path, "-"); remove {
				s.Path, s.Value = other, "null"
			}
			if value != "" {
				out = append(out, s)
			}
		}
	}
	named := func(flag, path, name string) {
		if name != "" {
			out = append(out, scenario.FileSetting(file, path, flag, name))
		}
	}
	named("--epp-config", "pools[*].epp.config", f.EPPConfig)
	add("--model", f.Model, "-pools[*].modelServer.model", "-pools[*].modelServer.modelConfig",
		"-pools[*].groups[*].modelServer.model", "-workload.model", "pools[*].model")
	add("--accelerator", f.Accelerator, "-pools[*].groups[*].modelServer.accelerator",
		"pools[*].modelServer.accelerator")
	for _, field := range append(scenario.BesideTrace(), "trace") {
		add("--trace", f.Trace, "-workload."+field)
		add("--recording", f.Recording, "-workload."+field)
	}
	named("--trace", "workload.trace.file", f.Trace)
	if text || file == scenario.DeployedFile {
		add("--seed", given(f.Seed), "seed")
		add("--requests", given(f.Requests), "workload.requests")
		if file == scenario.DeployedFile {
			add("--concurrency", given(f.Concurrency), "-workload.rate") // otherwise it would only limit the rate
		}
		add("--concurrency", given(f.Concurrency), "workload.concurrency")
		add("--rate", given(f.Rate), "workload.rate")
		add("--prefill", f.Prefill, "-pools[*].modelServer.accelerator", "pools[*].modelServer.prefill")
		add("--batching", f.Batching, "pools[*].modelServer.batching")
		add("--replicas", given(f.Replicas), "pools[*].replicas")
	}
	more, err := search.ParseSettings("--set", set)
	return append(out, more...), err
}

// given returns a flag's number, "" without one.
func given[T int | uint64 | float64](flag *T) string {
	if flag == nil {
		return ""
	}
	return fmt.Sprint(*flag)
}

// changeFlags are changes to a scenario.
type changeFlags struct {
	Requests    *int     `short:"n" placeholder:"N" help:"Send this many requests instead of the scenario's."`
	Concurrency *int     `short:"c" placeholder:"C" help:"Keep this many requests in flight."`
	Rate        *float64 `placeholder:"R" help:"Send R requests a second, whether or not earlier ones have ended."`
	Prefill     string   `placeholder:"100ms..30s" help:"Time of prefill: a duration, a range, or a distribution such as lognormal(200ms, 100ms)."`
	Batching    string   `placeholder:"KIND" help:"How batching model servers batch: continuous, static or none."`
	Replicas    *int     `placeholder:"N" help:"Simulate this many model servers per pool."`
	Seed        *uint64  `placeholder:"S" help:"Seed of all random choices. The same seed gives the same run."`
}

// setFlag, sloFlag and envoyFlag have the same meaning in every command.
type (
	setFlag struct {
		Set []string `placeholder:"PATH=VALUE" sep:"none" help:"Change a field of the scenario, such as 'pools[0].modelServer.maxNumSeqs=64'. Repeatable."`
	}
	sloFlag struct {
		SLO []string `name:"slo" placeholder:"ttft=200ms,tpot=30ms" help:"The most that ttft, tpot and e2e of a good answer may take, for goodput and attainment."`
	}
	envoyFlag struct {
		EnvoyPath string `placeholder:"FILE" fromenv:"ENVOY_PATH" help:"The Envoy to use. Left out: one on PATH or in the cache, or a download into the cache."`
	}
)

// verboseFlag has the same meaning in every command whose parts log.
type verboseFlag struct {
	Verbose bool `short:"v" help:"Log what the parts do, to stderr."`
}

// log returns a logger to stderr, nil without the flag.
func (f *verboseFlag) log(o *outside) *slog.Logger {
	if !f.Verbose {
		return nil
	}
	return o.Logger(slog.LevelDebug)
}

// read reads the scenario, with fields set, each as path=value, and applies the flags. more are changes by flags of one
// command. After an error in a flag's value, it still returns the scenario.
func (f *loadFlags) read(o *outside, set []string, more ...func(*scenario.Overrides)) (v search.Variant,
	s *scenario.Scenario, err error) {
	r, err := f.recorded(o)
	if err != nil {
		return v, nil, err
	}
	settings, err := f.settings(r.Settings, set, false)
	if err != nil {
		return v, nil, err
	}
	v = search.Variant{Settings: settings, Overrides: f.overrides(), Recorded: r.Requests, Recording: f.Recording}
	for _, change := range more {
		change(&v.Overrides)
	}
	s, err = v.Read(o.Stdin, f.file())
	return v, s, err
}

// scenarioWith returns the scenario that read reads, and prints its notes.
func (f *loadFlags) scenarioWith(o *outside, set []string, more ...func(*scenario.Overrides)) (*scenario.Scenario,
	error) {
	v, s, err := f.read(o, set, more...)
	noteAll(o, v.Assumed)
	if err != nil {
		return nil, err
	}
	if pace := s.Paced(); pace != "" {
		note(o, pace)
	}
	return s, nil
}

// note prints a note for the user on stderr.
func note(o *outside, text string) { fmt.Fprintf(o.Stderr, "windtunnel: note: %s\n", text) }

func noteAll(o *outside, texts []string) {
	for _, text := range texts {
		note(o, text)
	}
}

func (f *changeFlags) overrides() scenario.Overrides {
	return scenario.Overrides{Seed: f.Seed, Requests: f.Requests, Concurrency: f.Concurrency, Rate: f.Rate,
		Prefill: f.Prefill, Batching: f.Batching, Replicas: f.Replicas}
}

// overrides leaves out what settings has.
func (f *loadFlags) overrides() (x scenario.Overrides) {
	if f.file() != scenario.DeployedFile {
		x = f.changeFlags.overrides()
	}
	return x
}

// variant reads a scenario that is played several times.
func (f *loadFlags) variant(o *outside, set []string) (search.Variant, error) {
	v, _, err := f.read(o, set)
	if err == nil {
		noteAll(o, v.Assumed)
	}
	return v, err
}

// inputs are the files that a run of s reads.
func (f *loadFlags) inputs(s *scenario.Scenario) []string {
	list := append(s.Files(), f.File, f.Recording)
	if f.File == "-" {
		list = append(list, "/dev/stdin")
	}
	return list
}

// loadScenario loads a file, - for standard input, or a built-in scenario, with exit codes and hints.
func loadScenario(o *outside, path string) (*scenario.Scenario, error) {
	var v search.Variant
	s, err := v.Read(o.Stdin, path)
	noteAll(o, v.Assumed)
	return s, err
}
