package up

import "github.com/windtunnel/windtunnel/core/gateway"

// environ holds a container's environment variables.
type environ map[string]string

// lookup is os.LookupEnv for the container's environment.
func (e environ) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// started returns the arguments and the environment with which Kubernetes, and the container's shell if it has one,
// start the container's program in a pod. The error is an *InvalidError.
func started(c *gateway.Container, p *pod) ([]string, environ, error) {
	at := gateway.Place{Name: p.Name(), Namespace: p.Workload.Namespace}
	if p.ip.IsValid() {
		at.IP = p.ip.String()
	}
	x, err := c.Process(at)
	if err != nil {
		return nil, nil, &InvalidError{err}
	}
	return x.Args, x.Env, nil
}
