package program

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario"
)

// loadFlags say what is played: a scenario, and what to change in it. run and
// sim have the same.
type loadFlags struct {
	File string `arg:"" optional:"" name:"scenario.yaml" help:"The scenario to play, - for one on standard input. Left out: the embedded one (windtunnel scenario show prints it)."`
	changeFlags
}

// changeFlags say what to change in a scenario.
type changeFlags struct {
	Requests    *int     `short:"n" placeholder:"N" help:"Send this many requests instead of the scenario's."`
	Concurrency *int     `short:"c" placeholder:"C" help:"Have this many requests in flight at once."`
	Rate        *float64 `placeholder:"R" help:"Send R requests a second, whether or not earlier ones have ended."`
	Prefill     string   `placeholder:"100ms..30s" help:"How long prefill takes: a duration, a range, or a distribution such as lognormal(200ms, 100ms)."`
	Batching    string   `placeholder:"KIND" help:"How requests share a model server that batches: continuous, static or none."`
	Replicas    *int     `placeholder:"N" help:"Simulate this many model servers per pool."`
	Seed        *uint64  `placeholder:"S" help:"Where all randomness comes from: the same seed gives the same run."`
}

// scenarioWith reads the file, or takes the embedded one, with fields set, each as
// path=value, and applies the flags. more are changes that the command itself has flags for.
func (f *loadFlags) scenarioWith(o *outside, set []string, more ...func(*scenario.Overrides)) (s *scenario.Scenario,
	err error) {
	var settings []scenario.Setting
	for _, text := range set {
		one, err := scenario.ParseSetting(text)
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("--set: %w", err))
		}
		settings = append(settings, one)
	}
	if f.File != "" {
		s, err = loadScenario(o, f.File, settings...)
	} else {
		s, err = scenario.Parse(scenario.EmbeddedFile, scenario.EmbeddedText(), settings...)
		err = loadError(err)
	}
	if err != nil {
		return nil, err
	}
	if err := f.change(s, more...); err != nil {
		return nil, err
	}
	if pace := s.Paced(); pace != "" {
		fmt.Fprintf(o.Stderr, "windtunnel: note: %s\n", pace)
	}
	return s, nil
}

// change applies the flags.
func (f *changeFlags) change(s *scenario.Scenario, more ...func(*scenario.Overrides)) error {
	x := scenario.Overrides{Seed: f.Seed, Requests: f.Requests, Concurrency: f.Concurrency, Rate: f.Rate,
		Prefill: f.Prefill, Batching: f.Batching, Replicas: f.Replicas}
	for _, change := range more {
		change(&x)
	}
	return exit.With(exit.Usage, s.Override(x))
}

// inputs are the files that a run of s reads.
func (f *loadFlags) inputs(s *scenario.Scenario) []string {
	if f.File == "-" {
		return append(s.Files(), "/dev/stdin")
	}
	return s.Files()
}

// loadScenario is scenario.Load with exit codes and hints; - is standard input.
func loadScenario(o *outside, path string, settings ...scenario.Setting) (*scenario.Scenario, error) {
	var s *scenario.Scenario
	var err error
	if path == "-" {
		s, err = scenario.Read("standard input", o.Stdin, settings...)
	} else {
		s, err = scenario.Load(path, settings...)
	}
	if err == nil {
		for _, a := range s.Assumed() {
			fmt.Fprintf(o.Stderr, "windtunnel: note: %s\n", a)
		}
	}
	return s, loadError(err)
}

// loadError gives what is wrong with a scenario its exit code.
func loadError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Hint(exit.Input, err, "windtunnel scenario show > my.yaml writes one to start from")
	}
	return exit.With(exit.Input, err)
}
