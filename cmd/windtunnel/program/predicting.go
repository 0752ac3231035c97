package program

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// fitter returns a function that fits the trees of a scenario's latency predictors, nil if no predictor trains. Without
// the library it prints a note, and virtual time continues without predictions, as a live run does. stop ends the
// library's process.
func fitter(ctx context.Context, o *outside, s *scenario.Scenario) (fit func(context.Context, core.Fit) core.Fitted,
	stop func()) {
	if !slices.ContainsFunc(s.Pools, func(p scenario.Pool) bool { return p.Predictor.Train }) {
		return nil, func() {}
	}
	t, err := parts.Trainer(ctx, o)
	if err != nil {
		fmt.Fprintf(o.Stderr, "windtunnel: %v\nwindtunnel: the run continues without a latency predictor, and the "+
			"picker without predictions\n", err)
		return nil, func() {}
	}
	return func(ctx context.Context, f core.Fit) core.Fitted {
		out := t.Fit(ctx, f)
		if out.Err != nil && ctx.Err() == nil {
			fmt.Fprintf(o.Stderr, "windtunnel: the latency predictor was not trained at %v: %v\n", f.At, out.Err)
		}
		return out
	}, t.Close
}

// player returns a Player that trains latency predictors.
func player(o *outside) *search.Player {
	return &search.Player{Fitter: func(ctx context.Context, s *scenario.Scenario) (virtual.Fitter, func()) {
		fit, stop := fitter(ctx, o, s)
		return fitVirtually(ctx, fit), stop
	}}
}

// fitVirtually returns a fitter for virtual time, nil for nil.
func fitVirtually(ctx context.Context, fit func(context.Context, core.Fit) core.Fitted) virtual.Fitter {
	if fit == nil {
		return nil
	}
	return func(f core.Fit) core.Fitted { return fit(ctx, f) }
}

// saveModel writes models to a file.
func saveModel(path string, m *core.Models) error {
	if m == nil || !m.Ready(core.TTFT) || !m.Ready(core.TPOT) {
		return exit.Errorf(exit.Input, "--save-model: nothing was learned: the scenario has no predictor with "+
			"train: true, or it saw too few requests")
	}
	text, err := m.Save()
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		return exit.Errorf(exit.Input, "--save-model: %w", err)
	}
	return nil
}
