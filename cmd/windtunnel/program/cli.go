package program

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/calibrate"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/cluster"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/completion"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/lab"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/observe"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
)

// cli has every command. A new command is a field here and a file with its struct, which has kong's tags, a Run method
// that takes *outside, and a Help method with an example. The fromenv tag of a flag names the environment variable that
// stands in for it.
type cli struct {
	Run runCmd `cmd:"" group:"play" help:"Play a scenario live: real Envoy, endpoint picker, simulated model servers."`
	Sim simCmd `cmd:"" group:"play" help:"Play a scenario in virtual time: no Envoy, no sockets, no waiting."`

	Load sendCmd `cmd:"" group:"play" help:"Send a scenario's requests to a gateway that runs elsewhere."`

	Up upCmd `cmd:"" group:"play" help:"Bring Kubernetes manifests up, with a real Envoy and simulated model servers."`

	partCommands

	Explain explainCmd `cmd:"" group:"look" help:"Explain why a request went to its endpoint."`
	Preview previewCmd `cmd:"" group:"look" help:"Show where a request would go, for a state of the pool."`
	Pods    podsCmd    `cmd:"" group:"look" help:"List the pods of an endpoint picker, with labels and metrics."`
	Compare compareCmd `cmd:"" group:"decide" help:"Compare scenarios or recordings: what is better, what is worse."`

	Capacity capacityCmd `cmd:"" group:"decide" help:"Find the highest rate, or fewest servers, for objectives."`
	Sweep    sweepCmd    `cmd:"" group:"decide" help:"Play a scenario with each combination of values of its fields."`
	Tune     tuneCmd     `cmd:"" group:"decide" help:"Search the configuration that is best for an objective."`
	Validate validateCmd `cmd:"" group:"decide" help:"Play a scenario live and in virtual time, and compare."`
	breaking
	Experiment experimentCmd `cmd:"" group:"decide" help:"Measure again what documents claim, or under other conditions."`
	Calibrate  calibrate.Cmd `cmd:"" group:"decide" help:"Measure a real model server's step times for a scenario."`
	Replay     replayCmd     `cmd:"" group:"play" help:"Show a recording again."`
	StepTimes  stepTimesCmd  `cmd:"" name:"steptimes" group:"look" help:"Report how accurate tables of step times are."`
	Diagnose   diagnoseCmd   `cmd:"" group:"look" help:"Find the cause of late and failing requests, by the troubleshooting guide."`
	Trace      traceCmd      `cmd:"" group:"look" help:"Convert a recording for Perfetto, Chrome or Mermaid."`
	Observe    observe.Cmd   `cmd:"" group:"look" help:"Write configuration for Prometheus and Grafana, and start them."`
	Scenario   scenarioCmd   `cmd:"" group:"look" help:"Check, show and convert scenario files."`
	Manifests  manifestsCmd  `cmd:"" group:"look" help:"Check and show Kubernetes manifests, without starting anything."`
	Config     configCmd     `cmd:"" group:"look" help:"Print the Envoy configuration that a run would use."`
	Doctor     doctorCmd     `cmd:"" group:"look" help:"Report which Envoy a run would use, and what this machine lacks."`

	Completion completion.Command `cmd:"" group:"look" help:"Print shell completion for commands and flags."`
	Version    versionCmd         `cmd:"" group:"look" help:"Print the version."`
}

// partCommands run one part alone.
type partCommands struct {
	ModelServer parts.ModelServer `cmd:"" name:"modelserver" group:"parts" help:"Run simulated model servers alone, with vLLM's flags."`

	EPP       parts.EPP       `cmd:"" group:"parts" help:"Run the endpoint picker alone, with the real EPP's flags."`
	Sidecar   parts.Sidecar   `cmd:"" group:"parts" help:"Run the routing sidecar alone, with pd-sidecar's flags."`
	KVManager parts.KVManager `cmd:"" group:"parts" help:"Run the KV-cache manager alone: KV events in, scores out."`
	Predictor parts.Predictor `cmd:"" group:"parts" help:"Run the latency predictor alone, with the real one's HTTP."`
}

// breaking has the commands about what goes wrong.
type breaking struct {
	Lab   lab.Command `cmd:"" group:"play" help:"Learn by repairing a stack with a planted fault."`
	Chaos chaosCmd    `cmd:"" group:"decide" help:"Play random faults, and check that nothing is lost or left."`
}

const description = `A wind tunnel for the llm-d request flow: real Envoy, endpoint picker and sidecar,
simulated model servers.

windtunnel help COMMAND prints a command's flags and examples, windtunnel help --all those of all commands.`

var groups = []kong.Group{
	{Key: "play", Title: "Play a scenario"},
	{Key: "decide", Title: "Decide"},
	{Key: "look", Title: "Look"},
	{Key: "parts", Title: "Run one part alone, with the flags of the real part"},
}

// execute parses the arguments and runs their command.
func execute(args []string, o *outside) (err error) {
	defer func() { // kong exits while it parses --help
		switch r := recover().(type) {
		case nil:
		case exited:
			if r != 0 {
				err = exit.Reported(exit.Code(r), errors.New("exit"))
			}
		default:
			panic(r)
		}
	}()
	if k := lab.Of(args); k != nil {
		return k.Run(o)
	}
	if there := cluster.Args(args); there != nil {
		return cluster.Start(o, there)
	}
	parser, err := newParser(&cli{}, o)
	if err != nil {
		return err
	}
	if line, ok := o.Env("COMP_LINE"); ok {
		return completion.Line(parser.Model, line, o)
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help" && slices.Contains(args, "--all"):
		return allHelp(o)
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		args[0] = "version"
	}
	ctx, err := parser.Parse(parts.Args(renameFlags(args, o), o))
	if err != nil {
		return usageError(err)
	}
	return ctx.Run(o)
}

type exited int

func newParser(commands *cli, o *outside) (*kong.Kong, error) {
	parser, err := kong.New(commands,
		kong.Name("windtunnel"), kong.Description(description),
		kong.Writers(o.Stdout, o.Stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups(groups),
		kong.Resolvers(o.Flags()),
		kong.Bind(o),
	)
	if err != nil {
		return nil, err
	}
	for _, leaf := range parser.Model.Leaves(false) {
		own, imitates := parts.Own[leaf.Name]
		for _, f := range leaf.Flags {
			if describe(f); imitates && !slices.Contains(own, f.Name) {
				f.Group = &kong.Group{Key: "real", Title: "Flags of the real part, or of the documents:"}
			}
		}
	}
	return parser, nil
}

// describe adds the values that a flag takes, and the environment variable that stands in for it, to the flag's help.
func describe(f *kong.Flag) {
	if f.Enum != "" && f.PlaceHolder == "" {
		f.PlaceHolder = strings.ReplaceAll(strings.Trim(f.Enum, ","), ",", "|")
	}
	if name := f.Tag.Get("fromenv"); name != "" {
		f.Help = strings.TrimSuffix(f.Help, ".") + " (" + name + ")."
	}
}

// usageError adds a hint to the command's help to the error of a wrong command line. An unreadable file of a flag has
// another exit code.
func usageError(err error) error {
	if err := exit.ByCause(exit.Usage, err); exit.Of(err) != exit.Usage {
		return err
	}
	command := "windtunnel"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if selected := parse.Context.Selected(); selected != nil {
			command = "windtunnel " + selected.Path()
		}
	}
	command = strings.TrimPrefix(command, "windtunnel windtunnel ")
	return exit.Hint(exit.Usage, likely(err), fmt.Sprintf("Try: %s --help", command))
}

// guessed matches a usage error with a guess.
var guessed = regexp.MustCompile(`^(.* -*(\S+)), did you mean (one of )?"-*(\S)`)

// negative matches a usage error with a hint that does not help, and number one that names a type of Go.
var (
	negative = regexp.MustCompile(
		`^(.*expected) (uint|int|float) value (but got "-.*") \(short flag\); perhaps try .*$`)
	number = regexp.MustCompile(`^(.*expected a) (?:valid \d+ bit (u?int)|(float)) (but got ".*?")(?: \(string\))?$`)
)

// otherNames maps words that people type for a command to its name.
var otherNames = map[string]string{"simulate": "sim", "simulation": "sim", "start": "run", "play": "run", "serve": "up",
	"apply": "up", "diff": "compare", "benchmark": "capacity", "check": "scenario check", "lint": "scenario check",
	"init": "scenario new", "new": "scenario new"}

// likely removes a guess that does not begin with the same letter, because any short word is close to any other. It
// names numbers in ordinary words.
func likely(err error) error {
	kinds := map[string]string{"uint": "whole number from 0 on", "int": "whole number", "float": "number"}
	if m := negative.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s a %s from 0 on %s", m[1], strings.TrimSuffix(kinds[m[2]], " from 0 on"), m[3])
	}
	if m := number.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s %s %s", m[1], kinds[m[2]+m[3]], m[4])
	}
	if word, is := strings.CutPrefix(err.Error(), "unexpected argument "); is && otherNames[word] != "" {
		return fmt.Errorf("%w, did you mean %q?", err, otherNames[word])
	} else if is && files.IsManifest(word) {
		return fmt.Errorf("%w; expected one file at most; compare and scenario check take several", err)
	}
	m := guessed.FindStringSubmatch(err.Error())
	if m == nil || m[2][:1] == m[4] {
		return err
	}
	return errors.New(m[1])
}
