package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/meter"
	"github.com/windtunnel/windtunnel/internal/chaos"
	"github.com/windtunnel/windtunnel/internal/chaos/wall"
	"github.com/windtunnel/windtunnel/internal/exit"
)

type chaosCmd struct {
	loadFlags
	setFlag
	For   time.Duration `placeholder:"10m" help:"How long the load of a run takes, about. Left out: the scenario's own, at most 100 requests."`
	Seeds *int          `placeholder:"N" help:"How many lists of faults to play, 1000 if left out. With --seed, those from S on, 1 if left out."`
	Save  string        `placeholder:"DIR" help:"Write the scenario of each failure, with its faults, to DIR/SEED.yaml."`
	Live  bool          `help:"Play one seed against the real stack, with a real Envoy, in wall time."`
	envoyFlag
	verboseFlag
	Output string `short:"o" enum:"text,json" default:"text" help:"A table, or one JSON object."`
}

func (c *chaosCmd) Help() string {
	return `Plays a scenario in virtual time with random faults: every kind of its incidents, and of the faults of
requests. A seed draws the faults of a run. At the end of each run everything must add up: one outcome per
request, as many requests and tokens at every part, no block held, nothing left. A seed that breaks this
shrinks to few faults, printed for --set of windtunnel sim. --seed S plays the faults of S again; the
scenario's own seed stays. --live plays one seed with a real Envoy, and also counts goroutines, files,
memory and series of metrics. docs/chaos.md has the faults and what is checked.

Examples:
  windtunnel chaos mine.yaml                            # 1000 seeds
  windtunnel chaos mine.yaml --seeds 10000 --save found # and the scenarios of those that fail
  windtunnel chaos mine.yaml --seed 17                  # seed 17 again
  windtunnel chaos mine.yaml --for 10m --seeds 100      # ten minutes of load each
  windtunnel chaos mine.yaml --live --for 10m --seed 3  # seed 3 against the real stack
  windtunnel chaos mine.yaml --output json              # for programs`
}

// seeds returns the first seed and the number of seeds.
func (c *chaosCmd) seeds() (first uint64, n int, err error) {
	first, n = 1, 1000
	if c.Seed != nil {
		first, n = *c.Seed, 1
	}
	if c.Seeds != nil {
		n = *c.Seeds
	}
	switch {
	case n < 1 || n > chaos.MaxSeeds:
		return 0, 0, exit.Errorf(exit.Usage, "--seeds: found %d; expected a whole number, from 1 to %d", n,
			chaos.MaxSeeds)
	case c.Live && c.Seeds != nil:
		return 0, 0, exit.Errorf(exit.Usage, "--live: found --seeds %d; expected one seed, which --seed names", n)
	case c.For < 0 || c.For > chaos.MaxFor:
		return 0, 0, exit.Errorf(exit.Usage, "--for: found %s; expected a duration up to %s, such as 10m", c.For,
			chaos.MaxFor)
	}
	return first, n, nil
}

func (c *chaosCmd) Run(o *outside) error {
	first, n, err := c.seeds()
	if err != nil {
		return err
	}
	load := c.loadFlags
	load.Seed = nil // it is the faults'
	v, err := load.variant(o, c.Set)
	if err != nil {
		return err
	}
	if c.Save != "" {
		if err := os.MkdirAll(c.Save, 0o755); err != nil {
			return exit.Errorf(exit.Input, "--save: %w", err)
		}
	}
	ctx, stop := o.Context()
	defer stop()
	base, err := chaos.NewBase(ctx, v, c.For)
	if err != nil {
		return err
	}
	if c.Live {
		return c.live(ctx, o, base, first)
	}
	p := player(o)
	end := meter.Watch(o, p)
	r, err := base.Run(ctx, first, n, p.Progress)
	end()
	if r == nil {
		return err
	}
	if c.Output == "json" {
		err = errors.Join(json.NewEncoder(o.Stdout).Encode(r), err)
	} else {
		err = errors.Join(r.Write(o.Stdout), err)
	}
	return c.verdict(base, r, err)
}

// live plays one seed against the real stack.
func (c *chaosCmd) live(ctx context.Context, o *outside, base *chaos.Base, seed uint64) error {
	r, leaks, err := wall.Play(ctx, wall.Options{Base: base, Seed: seed, EnvoyPath: c.EnvoyPath, Log: c.log(o),
		Start: startError})
	switch {
	case ctx.Err() != nil:
		err = exit.Reported(exit.Interrupted, ctx.Err())
	case err != nil:
		err = exit.ByCause(exit.Broken, err)
	}
	if r == nil {
		return err
	}
	if c.Output == "json" {
		err = errors.Join(json.NewEncoder(o.Stdout).Encode(struct {
			*chaos.Report
			Leaks *wall.Leaks `json:"leaks"`
		}{r, leaks}), err)
	} else {
		err = errors.Join(r.Write(o.Stdout), leaks.Write(o.Stdout), err)
	}
	return c.verdict(base, r, err)
}

// verdict writes the failures' scenarios, and returns the command's error.
func (c *chaosCmd) verdict(base *chaos.Base, r *chaos.Report, err error) error {
	for i := range r.Failures {
		if c.Save != "" {
			err = errors.Join(err, c.save(base, &r.Failures[i]))
		}
	}
	if err == nil && len(r.Failures) > 0 {
		return exit.Errorf(exit.Failed, "%d of %d seeds broke an invariant", len(r.Failures), r.Seeds)
	}
	return err
}

// save writes the scenario of a failure.
func (c *chaosCmd) save(b *chaos.Base, f *chaos.Failure) error {
	text, err := b.Text(f.Faults)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Save, fmt.Sprintf("%d.yaml", f.Seed)), []byte(text), 0o644)
	}
	if err != nil {
		return exit.Errorf(exit.Input, "--save: %w", err)
	}
	return nil
}
