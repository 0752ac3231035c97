package silicon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// fold is the share of the results that tests a fit: every fifth is left out.
const fold = 5

// Calibrated is a calibration fitted to results, with its test.
type Calibrated struct {
	Prior latency.Calibration
	*Fitted
	// All are the results as the fit predicts them. Left is every fifth of them as a fit to the others predicts it, and
	// Before the same ones as the prior predicts them; none with fewer than five results.
	All, Left, Before []Compared
}

// Calibrate fits a calibration to results, beginning with a prior, and reports its progress in percent.
func Calibrate(ctx context.Context, rows []Row, prior *latency.Calibration, progress func(percent int, what string)) (
	*Calibrated, error) {
	servers, err := Servers(rows)
	if err != nil {
		return nil, err
	}
	const steps = 14
	fitter := NewFitter(servers, prior)
	out := &Calibrated{Prior: *prior}
	out.Fitted, err = fitter.Fit(ctx, prior, steps, func(step int, cost float64) {
		progress(90*step/steps, fmt.Sprintf("%d results, weighted error %.3f", len(rows),
			math.Sqrt(cost/float64(len(rows)))))
	})
	if err != nil {
		return nil, err
	}
	if out.All, err = Predict(ctx, servers, &out.Calibration); err != nil || len(rows) < fold {
		return out, err
	}
	number := 0
	left := map[*Row]bool{}
	var some []*Server
	for i := range rows {
		if number++; number%fold == 0 {
			left[&rows[i]] = true
			some = append(some, servers[i])
		}
	}
	progress(95, "without every fifth result")
	if out.Left, err = fitter.Without(ctx, out.Fitted, func(r *Row) bool { return left[r] }); err == nil {
		out.Before, err = Predict(ctx, some, prior)
	}
	return out, err
}

// Servers resolves the servers of rows. The error names all rows whose server cannot be.
func Servers(rows []Row) ([]*Server, error) {
	servers := make([]*Server, len(rows))
	var errs []error
	for i := range rows {
		s, err := NewServer(&rows[i])
		if servers[i] = s; err != nil && len(errs) < 10 {
			errs = append(errs, err)
		}
	}
	return servers, errors.Join(errs...)
}

// determined is the part of priorSpread above which the results do not determine a parameter.
const determined = 0.7

// WriteText prints the errors and the parameters.
func (c *Calibrated) WriteText(to io.Writer) error {
	var b bytes.Buffer
	line := func(what string, rows []Compared) {
		if len(rows) == 0 {
			return
		}
		x := Compare(rows).All
		fmt.Fprintf(&b, "  %-38s %4d  TPOT %s (bias %s)  TTFT %s (bias %s)\n", what, x.Rows, percent(x.TPOT.Median),
			signed(x.TPOT.Bias), percent(x.TTFT.Median), signed(x.TTFT.Bias))
	}
	fmt.Fprintln(&b, "median errors")
	line("results, by the fit to them", c.All)
	line("every fifth, by a fit to the others", c.Left)
	line("the same ones, by the former parameters", c.Before)
	fmt.Fprintf(&b, "parameters%33s%12s%9s\n", "fitted", "before", "spread")
	for p := range parameters {
		x := &latency.Parameters[p]
		spread := fmt.Sprintf("±%.0f%%", 100*c.Spread[p])
		if c.Spread[p] > determined*priorSpread {
			spread = "not determined by these results"
		}
		fmt.Fprintf(&b, "  %-24s %8.4g %-6s %11.4g  %s\n", x.Name, c.Calibration[p], x.Unit, c.Prior[p], spread)
	}
	_, err := to.Write(b.Bytes())
	return err
}

// WriteFile writes the calibration file.
func (c *Calibrated) WriteFile(to io.Writer) error {
	f := latency.CalibrationFile{Results: len(c.All), Spread: map[string]float64{}}
	for p := range parameters {
		f.Parameters[p] = digits(c.Calibration[p], 5)
		f.Spread[latency.Parameters[p].Name] = digits(c.Spread[p], 2)
	}
	if len(c.Left) > 0 {
		x := Compare(c.Left).All
		f.TPOT, f.TTFT = digits(x.TPOT.Median, 3), digits(x.TTFT.Median, 3)
	}
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(f)
}

// digits rounds to significant digits.
func digits(v float64, n int) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow10(n - 1 - int(math.Floor(math.Log10(math.Abs(v)))))
	return math.Round(v*scale) / scale
}
