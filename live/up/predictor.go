package up

import (
	"cmp"

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

// readPredictor reads the environment of the pod's latency predictor. It returns nil if predictors are left out.
func (u *Up) readPredictor(p *pod, c *gateway.Container) (StartPredictor, error) {
	_, env, err := started(c, p)
	if err != nil {
		return nil, err
	}
	if u.o.Predictor == nil {
		u.note(p.Workload.Where(c) + ": there is no latency predictor here: the container is left out")
		return nil, nil
	}
	start, err := u.o.Predictor(env.lookup)
	if err != nil {
		return nil, &InvalidError{err}
	}
	return start, nil
}

// startPredictor starts the pod's latency predictor.
func (u *Up) startPredictor(p *pod, c *gateway.Container) error {
	start, err := u.readPredictor(p, c)
	if err != nil || start == nil {
		return err
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
		at = append(at, u.addresses.On(p.ip, port))
	}
	at, stop, err := start(u.life, at[0], at[1:])
	if err != nil {
		return err
	}
	p.stops = append(p.stops, stop)
	for i, port := range ports {
		p.beside[port] = at[i]
	}
	return nil
}
