// Package chaos plays a scenario with random faults, and checks what must hold whatever goes wrong: every request has
// one outcome, requests, tokens and blocks agree at all parts, and nothing is left at the end. A list of faults is a
// pure function of the scenario and a seed, and becomes incidents of the scenario. So a seed that breaks an invariant
// replays exactly, shrinks to few faults, and is a scenario that sim and run play. Begin to read at Base.Play.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// DefaultRequests bounds the requests of a seed, unless the length of a run is given. MaxSeeds bounds the seeds of a
// command, and MaxFor the length of a run.
const (
	DefaultRequests = 100
	MaxSeeds        = 10_000_000
	MaxFor          = 24 * time.Hour
)

// Base is a scenario without random faults, and what drawing needs to know of it.
type Base struct {
	variant search.Variant
	// Scenario is the parsed text.
	Scenario *scenario.Scenario
	// Span is how long the scenario takes without faults. Faults begin within it.
	Span time.Duration

	pools  []int // that faults may happen to
	events int   // of the run without faults, in the unit of virtual.Options.Progress
}

// NewBase reads and plays a scenario without faults. Its load takes about long; 0 is the scenario's own load, at most
// DefaultRequests requests. An error says what is wrong with the scenario.
func NewBase(ctx context.Context, v search.Variant, long time.Duration) (*Base, error) {
	b := &Base{variant: v}
	s, err := v.Scenario(0)
	if err != nil {
		return nil, err
	}
	if b.pools = b.targets(s); len(b.pools) == 0 {
		return nil, exit.Errorf(exit.Input, "%s: pools: found no pool of simulated model servers in the file; "+
			"expected one (replicas, or the name of a pool of the manifests), which faults happen to", v.Name)
	}
	if n := s.Workload.Requests; n == 0 || n > DefaultRequests {
		b.limit(DefaultRequests)
	}
	for range 2 {
		if b.Scenario, err = b.variant.Scenario(0); err != nil {
			return nil, err
		}
		o := b.play(ctx, b.variant)
		switch {
		case ctx.Err() != nil:
			return nil, exit.Reported(exit.Interrupted, ctx.Err())
		case o.Broken != "":
			return nil, exit.Errorf(exit.Failed, "%s: without random faults: %s", v.Name, o.Broken)
		}
		b.Span, b.events = o.watch.over.Duration(), o.events
		if long == 0 || b.Span <= 0 {
			break
		}
		b.limit(int(min(1e8, math.Ceil(float64(b.Scenario.Workload.Requests)*long.Seconds()/b.Span.Seconds()))))
		long = 0
	}
	return b, nil
}

// limit sets the number of requests.
func (b *Base) limit(requests int) {
	b.variant.Settings = append(b.variant.Settings[:len(b.variant.Settings):len(b.variant.Settings)],
		scenario.Setting{Path: "workload.requests", Value: fmt.Sprint(requests)})
}

// targets returns the indexes in the file of the pools that faults may happen to.
func (b *Base) targets(s *scenario.Scenario) (out []int) {
	for i := range s.Pools {
		v := b.variant.With(setting(i, "incidents", nil))
		if _, err := v.Scenario(0); err == nil && len(s.Pools[i].Endpoints) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// With returns the scenario with faults, beside those of its file.
func (b *Base) With(faults []Fault) search.Variant {
	var settings []scenario.Setting
	for i := range b.Scenario.Pools {
		p := &b.Scenario.Pools[i]
		var incidents, ofRequests []string
		for _, f := range faults {
			switch {
			case f.Pool != i:
			case f.Incident != nil:
				incidents = append(incidents, f.String())
			default:
				ofRequests = append(ofRequests, f.String())
			}
		}
		if len(incidents) > 0 {
			settings = append(settings, setting(i, "incidents", append(texts(p.Incidents, incidentText), incidents...)))
		}
		if len(ofRequests) > 0 {
			settings = append(settings,
				setting(i, "modelServer.faults", append(texts(p.ModelServer.Faults, faultText), ofRequests...)))
		}
	}
	v := b.variant
	v.Settings = append(v.Settings[:len(v.Settings):len(v.Settings)], settings...)
	return v
}

// Text returns the text of the scenario with faults, which sim and run play.
func (b *Base) Text(faults []Fault) (string, error) {
	v := b.With(faults)
	text, err := scenario.WithSettings(v.File, v.Text, v.Settings)
	return string(text), err
}

func setting(pool int, field string, list []string) scenario.Setting {
	return scenario.Setting{Path: fmt.Sprintf("pools[%d].%s", pool, field),
		Value: "[" + strings.Join(list, ", ") + "]"}
}

func texts[T any](list []T, text func(*T) string) (out []string) {
	for i := range list {
		out = append(out, text(&list[i]))
	}
	return out
}

// Outcome is the result of one run with faults.
type Outcome struct {
	// Broken describes the invariant that did not hold; empty: all held.
	Broken string

	watch  *Watch
	events int
}

// Play plays the scenario with faults once. The outcome of an interrupted run means nothing.
func (b *Base) Play(ctx context.Context, faults []Fault) Outcome { return b.play(ctx, b.With(faults)) }

// endless is how many times as many events as without faults a run may have, and eventsMore how many besides.
const (
	endless    = 100
	eventsMore = 5000
)

func (b *Base) play(ctx context.Context, v search.Variant) (o Outcome) {
	o.watch = NewWatch()
	defer func() {
		if r := recover(); r != nil {
			o.Broken = fmt.Sprintf("panic: %v%s", r, origin(debug.Stack()))
		}
	}()
	s, err := v.Scenario(0)
	if err != nil {
		o.Broken = invalid + err.Error()
		return o
	}
	for i := range s.Pools {
		o.watch.Pool(virtual.Endpoints(i, &s.Pools[i]))
	}
	ends := true
	checks, err := virtual.Play(s, o.watch, virtual.Options{Progress: func(int) bool {
		o.events++
		ends = b.events == 0 || o.events < endless*b.events+eventsMore
		return ends && ctx.Err() == nil
	}})
	switch {
	case err != nil:
		o.Broken = err.Error()
	case !ends:
		o.Broken = fmt.Sprintf("the run never ends: %d of its requests have an outcome at %s of its time",
			o.watch.ended, o.watch.over)
	default:
		o.Broken = o.watch.Broken()
	}
	for _, c := range checks {
		if o.Broken == "" && !c.OK() {
			o.Broken = fmt.Sprintf("the index %s is not the union of the engines' blocks: %d are missing, %d too many",
				c.Index, c.Missing, c.Extra)
		}
	}
	return o
}

// invalid begins the text of an outcome of a scenario that is refused.
const invalid = "the scenario is refused: "

// origin returns where in windtunnel a panic began.
func origin(stack []byte) string {
	_, after, _ := strings.Cut(string(stack), "panic(")
	for line := range strings.Lines(after) {
		if name, _, ok := strings.Cut(line, "("); ok && strings.HasPrefix(line, "github.com/windtunnel/") {
			return " in " + name[strings.LastIndex(name, "/")+1:]
		}
	}
	return ""
}

// Drawn plays the faults of a seed. The error is an internal one: no faults could be drawn.
func (b *Base) Drawn(ctx context.Context, seed uint64) ([]Fault, Outcome, error) {
	for try := range uint64(mostDraws) {
		faults := b.draw(machine.NewDraw(seed, "chaos", "faults", try))
		o := b.Play(ctx, faults)
		if !strings.HasPrefix(o.Broken, invalid) {
			return faults, o, nil
		}
	}
	return nil, Outcome{}, errDraws
}

var errDraws = errors.New("chaos: every list of faults that was drawn is refused; this is a fault of windtunnel")

// DrawLive returns the faults of a seed that can happen in wall time, and the scenario with them.
func (b *Base) DrawLive(seed uint64) ([]Fault, search.Variant, error) {
	for try := range uint64(mostDraws) {
		faults := slices.DeleteFunc(b.draw(machine.NewDraw(seed, "chaos", "faults", try)), func(f Fault) bool {
			return f.Incident != nil && f.Incident.What == scenario.JumpClock
		})
		v := b.With(faults)
		if _, err := v.Scenario(0); err == nil {
			return faults, v, nil
		}
	}
	return nil, search.Variant{}, errDraws
}

// mostDraws bounds how often faults are drawn again because they cannot occur together.
const mostDraws = 100
