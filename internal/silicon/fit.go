package silicon

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// parameters is the number of parameters of a calibration.
const parameters = len(latency.Calibration{})

// Predict plays servers with a calibration, on all processors, and returns the predictions in the servers' order.
func Predict(ctx context.Context, servers []*Server, c *latency.Calibration) ([]Compared, error) {
	out := make([]Compared, len(servers))
	errs := make([]error, len(servers))
	next := make(chan int, len(servers))
	for i := range servers {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					return
				}
				out[i].Row = *servers[i].row
				out[i].TTFT, out[i].TPOT, errs[i] = servers[i].Play(c)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return out, nil
}

// Fitter fits calibrations to results: a robust least squares (Cauchy) of the logarithms of predicted over measured
// times, by Levenberg and Marquardt's method, with the parameters as logarithms, each within its bounds.
type Fitter struct {
	servers []*Server
	prior   latency.Calibration
	// The slopes of each residual by each parameter, from an earlier fit.
	slopes [][]float64
}

// Fitted is a fitted calibration.
type Fitted struct {
	Calibration latency.Calibration
	// Spread is, of each parameter, the standard deviation of its logarithm that the results leave. The parameter is
	// not determined if that is about priorSpread.
	Spread [parameters]float64
}

// priorSpread is the standard deviation of a parameter's logarithm around the prior. It keeps parameters that the
// results do not determine.
const priorSpread = 0.7

// NewFitter returns a Fitter of all servers. Parameters that the results do not determine stay near the prior.
func NewFitter(servers []*Server, prior *latency.Calibration) *Fitter {
	return &Fitter{servers: servers, prior: *prior}
}

// Fit fits to all results in at most that many steps, from a beginning, and reports each step and its cost.
func (f *Fitter) Fit(ctx context.Context, from *latency.Calibration, steps int, report func(step int, cost float64)) (
	*Fitted, error) {
	p := problem{Fitter: f, servers: f.servers, at: *from, damping: 1e-3}
	err := p.descend(ctx, steps, 2000, func(step int) (err error) {
		report(step, p.cost)
		p.slopes, err = f.slopesAt(ctx, &p.at, p.residuals)
		return err
	})
	if err != nil {
		return nil, err
	}
	report(steps, p.cost)
	f.slopes = p.slopes
	return &Fitted{p.at, p.spread()}, nil
}

// Without fits to the results of all servers but some, and returns what that fit predicts for these. It begins at the
// fit to all, and takes the slopes from there.
func (f *Fitter) Without(ctx context.Context, all *Fitted, leave func(*Row) bool) ([]Compared, error) {
	var left []*Server
	p := problem{Fitter: f, at: all.Calibration, damping: 1e-3}
	for i, s := range f.servers {
		if leave(s.row) {
			left = append(left, s)
			continue
		}
		p.servers = append(p.servers, s)
		p.slopes = append(p.slopes, f.slopes[2*i], f.slopes[2*i+1])
	}
	if err := p.descend(ctx, 4, 500, func(int) error { return nil }); err != nil {
		return nil, err
	}
	return Predict(ctx, left, &p.at)
}

// descend takes steps until one lowers the cost by less than cost / least. It calls before ahead of each step.
func (p *problem) descend(ctx context.Context, steps int, least float64, before func(step int) error) (err error) {
	if p.residuals, err = residuals(ctx, p.servers, &p.at); err != nil {
		return err
	}
	p.cost = p.costOf(p.residuals, &p.at)
	for step := range steps {
		was := p.cost
		if err = before(step); err == nil {
			err = p.step(ctx)
		}
		if err != nil || was-p.cost < was/least {
			return err
		}
	}
	return nil
}

// slopesAt returns the slopes of the residuals of all servers by each parameter's logarithm.
func (f *Fitter) slopesAt(ctx context.Context, c *latency.Calibration, at []float64) ([][]float64, error) {
	slopes := make([][]float64, len(at))
	for i := range slopes {
		slopes[i] = make([]float64, parameters)
	}
	const by = 1.04
	for p := range parameters {
		moved := *c
		if moved[p] *= by; moved[p] > latency.Parameters[p].High {
			moved[p] = c[p] / by
		}
		there, err := residuals(ctx, f.servers, &moved)
		if err != nil {
			return nil, err
		}
		for i := range at {
			slopes[i][p] = (there[i] - at[i]) / math.Log(moved[p]/c[p])
		}
	}
	return slopes, nil
}

// problem is a fit under way.
type problem struct {
	*Fitter
	servers   []*Server
	slopes    [][]float64
	at        latency.Calibration
	residuals []float64
	cost      float64
	damping   float64
}

func (p *problem) costOf(residuals []float64, c *latency.Calibration) float64 {
	sum := cauchy(residuals)
	for i := range c {
		d := math.Log(c[i]/p.prior[i]) / priorSpread
		sum += d * d / 2
	}
	return sum
}

// matrix is a symmetric matrix; only the lower triangle counts.
type matrix [parameters][parameters]float64

// normal returns the normal equations: the matrix, and the right side.
func (p *problem) normal() (left matrix, right [parameters]float64) {
	for a := range parameters {
		const stiff = 1 / (priorSpread * priorSpread)
		sum := -stiff * math.Log(p.at[a]/p.prior[a])
		for i, r := range p.residuals {
			sum -= weight(i, r) * p.slopes[i][a] * r
		}
		right[a] = sum
		for b := range a + 1 {
			sum := 0.0
			for i, r := range p.residuals {
				sum += weight(i, r) * p.slopes[i][a] * p.slopes[i][b]
			}
			if a == b {
				sum += stiff
			}
			left[a][b] = sum
		}
	}
	return left, right
}

// factorize returns the lower triangular matrix whose product with its transpose is m (Cholesky). ok is false if there
// is none.
func (m matrix) factorize() (l matrix, ok bool) {
	for i := range parameters {
		for j := range i + 1 {
			sum := m[i][j]
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			switch {
			case i != j:
				l[i][j] = sum / l[j][j]
			case sum > 0:
				l[i][i] = math.Sqrt(sum)
			default:
				return l, false
			}
		}
	}
	return l, true
}

// solve returns x with l·lᵀ·x = right.
func (l *matrix) solve(right [parameters]float64) [parameters]float64 {
	x := right
	for i := range parameters {
		for k := range i {
			x[i] -= l[i][k] * x[k]
		}
		x[i] /= l[i][i]
	}
	for i := parameters - 1; i >= 0; i-- {
		for k := i + 1; k < parameters; k++ {
			x[i] -= l[k][i] * x[k]
		}
		x[i] /= l[i][i]
	}
	return x
}

// step takes a step that lowers the cost, if it finds one.
func (p *problem) step(ctx context.Context) error {
	left, right := p.normal()
	for range 6 {
		damped := left
		for i := range parameters {
			damped[i][i] *= 1 + p.damping
		}
		if factor, ok := damped.factorize(); ok {
			moved := p.at
			for i, move := range factor.solve(right) {
				moved[i] *= math.Exp(max(-0.7, min(0.7, move)))
			}
			moved.Clamp()
			there, err := residuals(ctx, p.servers, &moved)
			if err != nil {
				return err
			}
			if cost := p.costOf(there, &moved); cost < p.cost {
				p.at, p.residuals, p.cost = moved, there, cost
				p.damping = max(p.damping/5, 1e-6)
				return nil
			}
		}
		p.damping = p.damping*10 + 1e-4
	}
	return nil
}

// spread returns the standard deviations of the parameters' logarithms.
func (p *problem) spread() (out [parameters]float64) {
	left, _ := p.normal()
	if factor, ok := left.factorize(); ok {
		for i := range out {
			var unit [parameters]float64
			unit[i] = 1
			out[i] = math.Sqrt(factor.solve(unit)[i])
		}
	}
	return out
}

// residuals returns the logarithms of predicted over measured times: TPOT and TTFT of each server in turn.
func residuals(ctx context.Context, servers []*Server, c *latency.Calibration) ([]float64, error) {
	all, err := Predict(ctx, servers, c)
	out := make([]float64, 0, 2*len(all))
	for i := range all {
		x := &all[i]
		out = append(out, math.Log(x.TPOT/x.Row.TPOT.Value()), math.Log(x.TTFT/x.Row.TTFT.Value()))
	}
	return out, err
}

// scales are the sizes of residuals, of TPOT and TTFT, above which they count ever less: some results are of servers
// that no model explains.
var scales = [2]float64{0.1, 0.2}

// weight is the weight of a residual in the least squares. A TTFT counts less than a TPOT.
func weight(i int, r float64) float64 {
	x := r / scales[i%2]
	return base(i) / (1 + x*x)
}

func base(i int) float64 {
	if i%2 == 1 {
		return 100
	}
	return 250
}

// cauchy is the cost of residuals.
func cauchy(all []float64) (sum float64) {
	for i, r := range all {
		scale := scales[i%2]
		sum += base(i) * scale * scale / 2 * math.Log1p(r*r/(scale*scale))
	}
	return sum
}
