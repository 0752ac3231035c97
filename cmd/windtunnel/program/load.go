package program

import (
	"fmt"
	"log/slog"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

// loadFlags are the scenario to play, and changes to it.
type loadFlags struct {
	File string `arg:"" optional:"" name:"scenario.yaml" help:"The scenario, - for standard input. Left out: the embedded one (windtunnel scenario show)."`
	changeFlags
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

// scenarioWith loads the scenario, with fields set, each as path=value, and applies the flags. more are changes by
// flags of one command.
func (f *loadFlags) scenarioWith(o *outside, set []string, more ...func(*scenario.Overrides)) (s *scenario.Scenario,
	err error) {
	if s, err = scenarioOrEmbedded(o, f.File, set); err != nil {
		return nil, err
	}
	x := f.overrides()
	for _, change := range more {
		change(&x)
	}
	if err := s.Override(x); err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	if pace := s.Paced(); pace != "" {
		note(o, pace)
	}
	return s, nil
}

// note prints a note for the user on stderr.
func note(o *outside, text string) { fmt.Fprintf(o.Stderr, "windtunnel: note: %s\n", text) }

func (f *changeFlags) overrides() scenario.Overrides {
	return scenario.Overrides{Seed: f.Seed, Requests: f.Requests, Concurrency: f.Concurrency, Rate: f.Rate,
		Prefill: f.Prefill, Batching: f.Batching, Replicas: f.Replicas}
}

// variant reads a scenario that is played several times.
func (f *changeFlags) variant(o *outside, file string, set []string) (search.Variant, error) {
	settings, err := search.ParseSettings("--set", set)
	if err != nil {
		return search.Variant{}, err
	}
	return search.ReadVariant(o.Stdin, file, settings, f.overrides())
}

// inputs are the files that a run of s reads.
func (f *loadFlags) inputs(s *scenario.Scenario) []string {
	if f.File == "-" {
		return append(s.Files(), "/dev/stdin")
	}
	return s.Files()
}

// scenarioOrEmbedded loads a file, or the embedded scenario for "", with fields set, each as path=value.
func scenarioOrEmbedded(o *outside, file string, set []string) (*scenario.Scenario, error) {
	settings, err := search.ParseSettings("--set", set)
	if err != nil {
		return nil, err
	}
	if file != "" {
		return loadScenario(o, file, settings...)
	}
	s, err := scenario.Parse(scenario.EmbeddedFile, scenario.EmbeddedText(), settings...)
	return s, search.LoadError(err)
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
			note(o, a)
		}
	}
	return s, search.LoadError(err)
}
