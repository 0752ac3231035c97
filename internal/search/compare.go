package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/comparison"
	"github.com/windtunnel/windtunnel/report/outcomes"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/scenario"
)

// maxVariants bounds the number of variants.
const maxVariants = 64

// CompareOptions say what is compared.
type CompareOptions struct {
	// Files are scenarios, recordings and files of outcomes. Stdin is read for the name -.
	Files []string
	Stdin io.Reader
	// Overrides change every scenario. Each of Variants adds a variant of every scenario, as path=value;path=value.
	Overrides scenario.Overrides
	Variants  []string
	// SLO are bounds in the form of record.ParseSLO.
	SLO          []string
	Replications int
	// Measures are the names of those that the verdict reads, empty for the default ones.
	Measures []string
	// Note is called with notes for the user.
	Note func(string)
}

// side is one of the variants, with a function that returns its result for each replication.
type side struct {
	name string
	play func(ctx context.Context, replication int) (*Result, error)
}

// Compare plays scenarios, reads recordings, and compares each with the first.
func (p *Player) Compare(ctx context.Context, c CompareOptions) (*comparison.Comparison, error) {
	slo, err := record.ParseSLO(c.SLO)
	reads, unknown := comparison.Named(c.Measures)
	switch n := len(c.Files) + len(c.Variants); {
	case err != nil:
		return nil, exit.Errorf(exit.Usage, "--slo: %w", err)
	case unknown != nil:
		return nil, exit.Errorf(exit.Usage, "--fail-if-worse: %w", unknown)
	case n < 2:
		return nil, exit.Hint(exit.Usage,
			errors.New("there is only one to compare; expected two or more scenarios or recordings, or one and "+
				"--variant"),
			"Try: windtunnel compare --help")
	case n > maxVariants:
		return nil, exit.Errorf(exit.Usage, "found %d to compare; expected at most %d", n, maxVariants)
	}
	if err := CheckReplications(1, c.Replications); err != nil {
		return nil, err
	}
	list, err := p.sides(&c)
	if err != nil {
		return nil, err
	}
	runs, sides := make([]report.Runs, len(list)), make([]comparison.Side, len(list))
	for i := range runs {
		runs[i], sides[i].Name = make(report.Runs, c.Replications), list[i].name
	}
	if err := Each(len(list)*c.Replications, func(n int) error {
		i, r := n/c.Replications, n%c.Replications
		x, err := list[i].play(ctx, r)
		if err != nil {
			return err
		}
		runs[i][r] = x.Sample
		if r == 0 {
			sides[i].Seed = x.Seed
		}
		return nil
	}); err != nil {
		return nil, err
	}
	out := comparison.Of(sides, runs, slo, reads)
	out.SLO = strings.Join(c.SLO, ",")
	return out, nil
}

func (p *Player) sides(c *CompareOptions) (list []side, err error) {
	for _, file := range c.Files {
		read := recorded
		if outcomes.Is(file) {
			read = readOutcomes
		}
		if outcomes.Is(file) || recording.Named(file) {
			if c.Replications > 1 || len(c.Variants) > 0 {
				return nil, exit.Errorf(exit.Usage, "%s is a recording of one run; --replications and --variant are "+
					"for scenarios", file)
			}
			list = append(list, side{file, func(context.Context, int) (*Result, error) { return read(file) }})
			continue
		}
		v, err := ReadVariant(c.Stdin, file, nil, c.Overrides)
		if err != nil {
			return nil, err
		}
		variants := []Variant{v}
		for _, text := range c.Variants {
			settings, err := ParseSettings("--variant", strings.Split(text, ";"))
			if err != nil {
				return nil, err
			}
			variants = append(variants, v.With(settings...))
		}
		for _, v := range variants {
			s, err := v.Scenario(0)
			if err != nil {
				return nil, err
			}
			if pace := s.Paced(); pace != "" {
				c.Note(v.Name + ": " + pace)
			}
			list = append(list, side{v.Name, func(ctx context.Context, replication int) (*Result, error) {
				return p.Variant(ctx, &v, replication)
			}})
		}
	}
	return list, nil
}

// readOutcomes returns the result in a file of outcomes.
func readOutcomes(file string) (*Result, error) {
	x := &Result{}
	var err error
	x.Sample, err = report.SampleOf(func(add func(report.Ended)) error {
		h, err := outcomes.ReadFile(file, func(r outcomes.Request) { add(report.Ended(r)) })
		x.Seed = h.Seed
		return err
	})
	if err == nil && len(x.Sample.Requests) == 0 {
		err = fmt.Errorf("%s has no request; expected a file that windtunnel run or sim wrote with --outcomes", file)
	}
	return x, exit.With(exit.Input, err)
}

// recorded returns the result in a recording.
func recorded(file string) (*Result, error) {
	t := report.NewTallyFor(0)
	end, err := report.ReadFile(file, func(e record.Event) error { t.Record(e); return nil })
	switch {
	case err != nil:
		return nil, recording.InputError(err)
	case t.Summary().Requests == 0:
		return nil, exit.Errorf(exit.Input, "%s has no request; expected a recording that windtunnel run or sim "+
			"wrote with --record", file)
	}
	x := &Result{Sample: t.Sample(), Summary: t.Summary()}
	if end != nil {
		x.Seed = end.Seed
		x.Sample.Judge(end.SLO.SLO())
	}
	return x, nil
}
