package silicon

import (
	"context"
	"fmt"
	"slices"
)

// Study holds predictions of rows by fits that have not seen them.
type Study struct {
	// All are all rows, as the fit to all of them predicts them.
	All []Compared
	// Models, Accelerators and Folds are all rows, each as a fit without its model, its accelerator, or a fifth of all
	// (model, accelerator, parallelism) groups predicts it.
	Models, Accelerators, Folds []Compared
}

// NewStudy fits to rows, all of them and without parts of them.
func NewStudy(ctx context.Context, rows []Row, c *Calibrated, report func(what string)) (*Study, error) {
	servers, err := Servers(rows)
	if err != nil {
		return nil, err
	}
	f := NewFitter(servers, &c.Prior)
	if f.slopes, err = f.slopesFrom(ctx, c.Fitted); err != nil {
		return nil, err
	}
	configurations := groupNames(rows, (*Row).Configuration)
	s := &Study{All: c.All}
	for _, x := range []struct {
		what string
		to   *[]Compared
		of   func(*Row) string
	}{
		{"model", &s.Models, func(r *Row) string { return r.Model }},
		{"accelerator", &s.Accelerators, func(r *Row) string { return r.Accelerator }},
		{"fold", &s.Folds, func(r *Row) string {
			return fmt.Sprint(1 + slices.Index(configurations, r.Configuration())%5)
		}},
	} {
		for _, name := range groupNames(rows, x.of) {
			report(fmt.Sprintf("without %s %s", x.what, name))
			left, err := f.Without(ctx, c.Fitted, func(r *Row) bool { return x.of(r) == name })
			if err != nil {
				return nil, err
			}
			*x.to = append(*x.to, left...)
		}
	}
	return s, nil
}

// slopesFrom returns the slopes at a fit.
func (f *Fitter) slopesFrom(ctx context.Context, at *Fitted) ([][]float64, error) {
	there, err := residuals(ctx, f.servers, &at.Calibration)
	if err != nil {
		return nil, err
	}
	return f.slopesAt(ctx, &at.Calibration, there)
}

// groupNames returns the distinct values of a property of rows, in order.
func groupNames(rows []Row, of func(*Row) string) (names []string) {
	for i := range rows {
		if name := of(&rows[i]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Kinds returns the errors of dense models and of mixtures of experts, and of each value of a property in these.
func Kinds(rows []Compared, of func(*Row) string) []Group {
	var out []Group
	for _, kind := range []string{"dense", "mixtures of experts"} {
		var some []Compared
		for _, c := range rows {
			if h, err := c.Row.Hardware(); err == nil && (h.Model.Experts > 0) == (kind != "dense") {
				some = append(some, c)
			}
		}
		out = append(out, groups(some, func(r *Row) (string, int) { return kind + ": " + of(r), 0 })...)
		out = append(out, group(kind, some))
	}
	return out
}
