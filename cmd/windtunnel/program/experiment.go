package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/shell"

	"github.com/windtunnel/windtunnel"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/meter"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/experiment"
	"github.com/windtunnel/windtunnel/internal/search"
)

// experimentCmd plays the claims of documents again.
type experimentCmd struct {
	Name string `arg:"" optional:"" help:"The experiment. Left out: list them."`
	setFlag
	Quick bool   `help:"Play only what takes seconds."`
	Write string `placeholder:"FILE" help:"Write the measured figures into FILE, a copy of docs/claims.md."`
	textOrJSON
}

func (experimentCmd) Help() string {
	return `Documents claim figures: 2.5 times the throughput, ten times lower latency, a third of the cost.
docs/claims.md has what windtunnel measures of each claim, and under which conditions it holds. An experiment
plays the scenarios of one part of that page in virtual time, and prints the part with the figures that it
measures. --set plays them under your conditions.

Exit codes: 0 the figures are those of the page, or --set is given; 1 a figure differs; 2 the command line is
wrong; 3 a file or a field is wrong; 4 a library is missing (predicted-latency).

Examples:
  windtunnel experiment
  windtunnel experiment kv-aware
  windtunnel experiment batching --set pools[0].modelServer.accelerator=H200
  windtunnel experiment prefill-decode --quick --output json
  windtunnel experiment batching --write docs/claims.md`
}

// experimentResult is the JSON of an experiment.
type experimentResult struct {
	Name    string              `json:"name"`
	Title   string              `json:"title"`
	Set     []string            `json:"set,omitempty"`
	Figures []experiment.Figure `json:"figures"`
}

func (c *experimentCmd) Run(o *outside) error {
	all, err := experiment.All(windtunnel.Files)
	if err != nil {
		return err
	}
	if c.Name == "" {
		return c.list(o, all)
	}
	i := slices.IndexFunc(all, func(e experiment.Experiment) bool { return e.Name == c.Name })
	if i < 0 {
		names := make([]string, len(all))
		for i, e := range all {
			names[i] = e.Name
		}
		return exit.Errorf(exit.Usage, "experiment: found %q; expected one of %s", c.Name, strings.Join(names, ", "))
	}
	return c.play(o, &all[i])
}

// list prints the names and titles of the experiments.
func (c *experimentCmd) list(o *outside, all []experiment.Experiment) error {
	results := make([]experimentResult, len(all))
	for i, e := range all {
		results[i] = experimentResult{Name: e.Name, Title: e.Title, Figures: []experiment.Figure{}}
	}
	return c.print(o, results, func(to io.Writer, _ int) error {
		for _, e := range all {
			if _, err := fmt.Fprintf(to, "%-18s %s\n", e.Name, e.Title); err != nil {
				return err
			}
		}
		return nil
	})
}

// play measures an experiment's figures and prints its part of the page with them.
func (c *experimentCmd) play(o *outside, e *experiment.Experiment) error {
	page, err := fs.ReadFile(windtunnel.Files, experiment.Page)
	if c.Write != "" {
		page, err = os.ReadFile(c.Write)
	}
	if err != nil {
		return exit.With(exit.Input, err)
	}
	dir, err := os.MkdirTemp("", "windtunnel-experiment-")
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, windtunnel.Files); err != nil {
		return exit.With(exit.Environment, err)
	}
	if err := e.Link(o.Getenv, dir, c.Quick, func(text string) { note(o, text) }); err != nil {
		return exit.With(exit.Environment, err)
	}
	figures, err := e.Figures(page, c.Quick)
	if err != nil {
		return exit.With(exit.Input, err)
	}
	ctx, stop := o.Context()
	defer stop()
	p, measured := search.Player{}, 0
	end := meter.Watch(o, &p)
	var mu sync.Mutex
	err = e.Measure(ctx, figures, plays(dir, c.Set), func() {
		mu.Lock()
		defer mu.Unlock()
		if measured++; p.Progress != nil {
			p.Progress("figures", measured, len(figures))
		}
	})
	end()
	switch {
	case ctx.Err() != nil:
		return exit.Reported(exit.Interrupted, ctx.Err())
	case err != nil:
		return err
	}
	rewritten := experiment.Rewrite(page, figures)
	if c.Write != "" {
		if err := os.WriteFile(c.Write, rewritten, 0o644); err != nil { //nolint:gosec // a page of documentation
			return exit.With(exit.Environment, err)
		}
	}
	return c.report(o, e, figures, e.Text(rewritten))
}

// report prints the verdict and, with the measured figures, the text.
func (c *experimentCmd) report(o *outside, e *experiment.Experiment, figures []experiment.Figure, text []byte) error {
	differ := 0
	for _, f := range figures {
		if f.Measured != f.Printed {
			differ++
		}
	}
	result := experimentResult{Name: e.Name, Title: e.Title, Set: c.Set, Figures: figures}
	err := c.verdict(o, result, differ == 0 || len(c.Set) > 0, func(to io.Writer, _ int) error {
		verdict := fmt.Sprintf("%s: all %d figures are those of %s", e.Name, len(figures), experiment.Page)
		if differ > 0 {
			verdict = fmt.Sprintf("%s: %d of %d figures differ from those of %s", e.Name, differ, len(figures),
				experiment.Page)
		}
		if _, err := fmt.Fprintf(to, "%s\n\n", verdict); err != nil {
			return err
		}
		for _, f := range figures {
			if f.Measured != f.Printed {
				if _, err := fmt.Fprintf(to, "  %s: %s instead of %s\n", f.Section, f.Measured, f.Printed); err != nil {
					return err
				}
			}
		}
		if c.Quick {
			text = append([]byte("The figures that --quick leaves out are those of the page.\n\n"), text...)
		}
		_, err := fmt.Fprintf(to, "%s%s", strings.Repeat("\n", min(differ, 1)), text)
		return err
	})
	if err == nil && differ > 0 && len(c.Set) == 0 && c.Write == "" {
		return exit.Reported(exit.Failed, fmt.Errorf("%d figures differ", differ))
	}
	return err
}

// plays returns the functions of experiments' expressions. Paths are those below dir, and set are fields to change.
func plays(dir string, set []string) map[string]experiment.Play {
	play := func(measure func(ctx context.Context, args []string) (any, error)) experiment.Play {
		return func(ctx context.Context, line string) (any, error) {
			args, err := shell.Fields(line, func(string) string { return "" })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			for i, a := range args {
				if strings.HasPrefix(a, "examples/") || strings.HasPrefix(a, "experiments/") {
					args[i] = filepath.Join(dir, a)
				}
			}
			for _, s := range set {
				args = append(args, "--set", s)
			}
			out, err := measure(ctx, args)
			if err != nil {
				text := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
				err = exit.With(exit.Of(err), errors.New(text))
			}
			return out, err
		}
	}
	return map[string]experiment.Play{
		"sim": play(simulated), "compare": play(comparedRuns), "steps": play(engineSteps),
		"checks": play(predictionChecks), "highestRate": play(highestRate),
	}
}

// lines plays a command and hands each line of its JSON output to a function. An expectation
// that the run misses is no error: tables show such runs, too.
func lines(ctx context.Context, args []string, each func(line []byte) error) error {
	reader, writer := io.Pipe()
	var stderr bytes.Buffer
	o := console.New()
	o.Context = func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	o.Stdout, o.Stderr, o.Terminal, o.Columns = writer, &stderr, false, 0
	var code int
	var done sync.WaitGroup
	done.Go(func() {
		code = run(append(slices.Clone(args), "--output", "json"), o)
		writer.Close() // of a pipe, which returns no error
	})
	in := bufio.NewScanner(reader)
	in.Buffer(nil, 64<<20)
	var err error
	for in.Scan() && err == nil {
		err = each(in.Bytes())
	}
	if err == nil {
		err = in.Err()
	}
	reader.CloseWithError(err)
	done.Wait()
	if err == nil && code != int(exit.OK) && code != int(exit.Failed) {
		text := strings.TrimSpace(strings.TrimPrefix(stderr.String(), "windtunnel: "))
		err = exit.Errorf(exit.Code(code), "windtunnel %s: %s", strings.Join(args, " "), text)
	}
	return err
}

// simulated returns the summary of a simulation, with spans and measures by name.
func simulated(ctx context.Context, args []string) (any, error) {
	var last []byte
	err := lines(ctx, append([]string{"sim"}, args...), func(line []byte) error {
		last = append(last[:0], line...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out struct {
		Summary map[string]any `json:"summary"`
	}
	if err := json.Unmarshal(last, &out); err != nil || out.Summary == nil {
		return nil, fmt.Errorf("windtunnel sim %s: no summary: %w", strings.Join(args, " "), err)
	}
	byName(out.Summary, "spans", "name")
	byName(out.Summary, "measures", "measure")
	return out.Summary, nil
}

// comparedRuns returns the first comparison of windtunnel compare, with its measures by name.
func comparedRuns(ctx context.Context, args []string) (any, error) {
	var text bytes.Buffer
	err := lines(ctx, append([]string{"compare"}, args...), func(line []byte) error {
		text.Write(line)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out struct {
		Comparisons []map[string]any `json:"comparisons"`
	}
	if err := json.Unmarshal(text.Bytes(), &out); err != nil || len(out.Comparisons) == 0 {
		return nil, fmt.Errorf("windtunnel compare %s: no comparison: %w", strings.Join(args, " "), err)
	}
	byName(out.Comparisons[0], "measures", "measure")
	return out.Comparisons[0], nil
}

// byName replaces a field's list of objects by a map from the value of their field name.
func byName(of map[string]any, field, name string) {
	list, _ := of[field].([]any)
	named := map[string]any{}
	for _, e := range list {
		if object, ok := e.(map[string]any); ok {
			named[fmt.Sprint(object[name])] = object
		}
	}
	of[field] = named
}

// engineSteps returns the details of each step of the engines.
func engineSteps(ctx context.Context, args []string) (any, error) {
	var out []any
	err := lines(ctx, append([]string{"sim"}, args...), func(line []byte) error {
		if !bytes.Contains(line, []byte(`"step":"`+string(record.EngineStep)+`"`)) {
			return nil
		}
		var e struct{ Details map[string]any }
		err := json.Unmarshal(line, &e)
		out = append(out, e.Details)
		return err
	})
	return out, err
}

// predictionChecks returns each comparison of a prediction with what a request took: the request's
// number, when, the endpoint, and for ttft and tpot prediction / truth - 1.
func predictionChecks(ctx context.Context, args []string) (any, error) {
	var out []any
	err := lines(ctx, append([]string{"sim"}, args...), func(line []byte) error {
		if !bytes.Contains(line, []byte(`"step":"`+string(record.PredictionChecked)+`"`)) {
			return nil
		}
		var e struct {
			Time     float64
			Request  string
			Endpoint string
			Details  map[string]float64
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		n, err := strconv.Atoi(e.Request[strings.LastIndexByte(e.Request, '-')+1:])
		if err != nil {
			return err
		}
		check := map[string]any{"number": n, "at": e.Time, "endpoint": e.Endpoint}
		for _, name := range []string{"ttft", "tpot"} {
			was, is := e.Details[name+"_ms"], e.Details["predicted_"+name+"_ms"] // a prediction may be 0
			if was == 0 {
				return fmt.Errorf("%s has no %s: %s", e.Request, name, line)
			}
			check[name] = is/was - 1
		}
		out = append(out, check)
		return nil
	})
	return out, err
}

// highestRate returns the highest whole rate a second, up to 100, at which 99 % of the requests
// keep the objectives of the scenario (attainment).
func highestRate(ctx context.Context, args []string) (any, error) {
	low, high := 0, 101
	for high-low > 1 {
		rate := (low + high) / 2
		out, err := simulated(ctx, append(slices.Clone(args), "--rate", strconv.Itoa(rate)))
		if err != nil {
			return nil, err
		}
		measures, _ := out.(map[string]any)["measures"].(map[string]any)
		attainment, _ := measures["attainment"].(map[string]any)
		kept, ok := attainment["value"].(float64)
		if !ok {
			return nil, fmt.Errorf("windtunnel sim %s: no attainment", strings.Join(args, " "))
		}
		if kept >= .99 {
			low = rate
		} else {
			high = rate
		}
	}
	return low, nil
}
