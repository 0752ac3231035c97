package up

import (
	"context"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/plan"
)

// readPredictor reads the environment of the pod's latency predictor.
func (u *Up) readPredictor(p *pod, c plan.Program) (start func() error, err error) {
	x, err := c.Container.Process(p.here())
	if err != nil {
		return nil, err
	}
	if u.o.Predictor == nil {
		u.note(p.Workload.Where(c.Container) + ": there is no latency predictor here: the container is left out")
		return func() error { return nil }, nil
	}
	o, err := u.o.Predictor(lookup(x.Env))
	if err != nil {
		return nil, err
	}
	var at []string
	for _, port := range c.Ports {
		at = append(at, p.On(port))
	}
	return func() error {
		fit, stop := u.o.Trainer(u.life)
		x, err := u.StartPredictor(core.New(o, nil), fit, at[0], at[1:]...)
		if err != nil {
			stop()
			return err
		}
		p.Predictor = x
		p.Stops(func(ctx context.Context) error { defer stop(); return x.Stop(ctx) })
		for i, address := range append([]string{x.TrainingAddress()}, x.PredictionAddresses()...) {
			p.Beside[c.Ports[i]] = address
		}
		return nil
	}, nil
}
