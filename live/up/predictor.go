package up

import (
	"cmp"
	"context"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/gateway"
)

// The latency predictor's default ports.
const (
	trainingPort   = 8000
	predictionPort = 8001
)

// predictorOf returns the container whose environment configures a pod's latency predictor, or nil.
func predictorOf(w *gateway.Workload) *gateway.Container {
	return cmp.Or(w.With(gateway.RoleTrainer), w.With(gateway.RolePredictor))
}

// readPredictor reads the environment of the pod's latency predictor.
func (u *Up) readPredictor(p *pod, c *gateway.Container) (start func() error, err error) {
	x, err := c.Process(p.here())
	if err != nil {
		return nil, err
	}
	if u.o.Predictor == nil {
		u.note(p.Workload.Where(c) + ": there is no latency predictor here: the container is left out")
		return func() error { return nil }, nil
	}
	o, err := u.o.Predictor(lookup(x.Env))
	if err != nil {
		return nil, err
	}
	ports := []int{trainingPort} // the training server always listens
	for i := range p.Workload.Containers {
		x := &p.Workload.Containers[i]
		port := 0
		if text, given := x.Flag("port"); given {
			port = atoi(text)
		} else if len(x.Ports) > 0 {
			port = x.Ports[0].Number
		}
		switch x.Role() {
		case gateway.RoleTrainer:
			ports[0] = cmp.Or(port, trainingPort)
		case gateway.RolePredictor:
			ports = append(ports, cmp.Or(port, predictionPort))
		}
	}
	var at []string
	for _, port := range ports {
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
			p.Beside[ports[i]] = address
		}
		return nil
	}, nil
}
