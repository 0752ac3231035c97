package search

import (
	"context"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/hops"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/validation"
	"github.com/windtunnel/windtunnel/scenario"
)

// CheckTolerance returns an error unless a tolerance in percent makes sense.
func CheckTolerance(percent float64) error {
	if !(percent > 0 && percent <= 1000) {
		return exit.Errorf(exit.Usage, "--tolerance: found %v; expected percent, above 0 and at most 1000", percent)
	}
	return nil
}

// Validate plays a scenario in virtual time and compares it with the recording of a live run. Virtual time uses the
// measured hops, if there are any, instead of the scenario's.
func (p *Player) Validate(ctx context.Context, v *Variant, live string, measured *hops.Times, tolerance float64) (
	*validation.Result, error) {
	if err := CheckTolerance(tolerance); err != nil {
		return nil, err
	}
	both := [2]validation.Requests{{}, {}}
	tallies := [2]*report.Tally{report.NewTally(), report.NewTally()}
	to := both[0].Watch(tallies[0])
	if _, err := recording.ReadFile[report.Summary](live,
		func(e record.Event) error { to.Record(e); return nil }); err != nil {
		return nil, recording.InputError(err)
	}
	with := v.WithHops(measured)
	s, err := with.Scenario(0)
	if err != nil {
		return nil, err
	}
	defer p.Counter("run in virtual time", 1)()
	if err := p.Record(ctx, s, both[1].Watch(tallies[1]), tallies[1], nil); err != nil {
		return nil, err
	}
	out := validation.Compare(tallies[0].Summary(), tallies[1].Summary(), both[0], both[1], tolerance)
	out.Hops = measured
	return out, nil
}

// WithHops returns the variant with measured hops. Hops without a measurement keep their values.
func (v *Variant) WithHops(measured *hops.Times) Variant {
	var settings []scenario.Setting
	for name, d := range measured.All() {
		settings = append(settings, scenario.Setting{Path: "hops." + name, Value: d})
	}
	return v.With(settings...)
}
