package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/live/kvmanager"
	"github.com/windtunnel/windtunnel/live/predictor"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// Pod is a pod that runs: its address, and the processes that listen there.
type Pod struct {
	PodName, PodNamespace string
	IP                    netip.Addr
	// Fixed holds addresses that the pod's ports have instead of those at IP, by the ports' numbers.
	Fixed map[int]string
	// At holds the listening addresses of its model server and its sidecar, by the ports' numbers. Beside holds those
	// of its other servers, which are no endpoints.
	At, Beside map[int]string
	// Sidecar is the routing sidecar, and Predictor the latency predictor; nil if there is none.
	Sidecar   *sidecar.Sidecar
	Predictor *predictor.Server
	// Manager is the KV-Cache Manager; nil if there is none.
	Manager *kvmanager.Manager

	run       *Run
	addresses *Addresses
	number    int // number of its address in the block of addresses
	options   sidecar.Options
	stops     []func(context.Context) error
}

// NewPod returns a pod without processes, at an address that no other pod has.
func (a *Addresses) NewPod(r *Run, namespace, name string) (p *Pod, err error) {
	p = &Pod{PodName: name, PodNamespace: namespace, At: map[int]string{}, Beside: map[int]string{}, run: r,
		addresses: a}
	p.number, p.IP, err = a.Take()
	return p, err
}

// On returns the address on which the pod's process with this port is to listen.
func (p *Pod) On(port int) string { return cmp.Or(p.Fixed[port], p.addresses.On(p.IP, port)) }

// Place returns the listening address of a port, or "".
func (p *Pod) Place(port int) string { return cmp.Or(p.At[port], p.Beside[port]) }

// StartSidecar starts the pod's routing sidecar on a port. The pod is ready only if all its containers are, so the
// sidecar reports the decode server's health.
func (p *Pod) StartSidecar(port int, o sidecar.Options) (err error) {
	o.Listen, o.PodName, o.Namespace, o.DecoderHealth = p.On(port), p.PodName, p.PodNamespace, true
	o.Now, o.Recorder, o.Disagg.Trace = p.run.Now, p.run.Recorder, p.run.Trace
	o.Log = cmp.Or(o.Log, p.run.Log)
	if p.Sidecar, err = sidecar.Start(o); err != nil {
		return fmt.Errorf("sidecar of %s: %w", p.PodName, err)
	}
	p.At[port], o.Listen, p.options = p.Sidecar.Addr(), p.Sidecar.Addr(), o
	p.Stops(func(ctx context.Context) error { return p.Sidecar.Stop(ctx) })
	return nil
}

// StartManager starts the pod's KV-Cache Manager on the ports in its options, as a server that is no sidecar's.
func (p *Pod) StartManager(o kvmanager.Options) (err error) {
	api, events := serve.PortOf(o.HTTPAddress), serve.PortOf(o.ZMQBind)
	o.HTTPAddress, o.Log = p.On(api), cmp.Or(o.Log, p.run.Log)
	if o.ZMQBind != "" {
		o.ZMQBind = "tcp://" + p.On(events)
	}
	if p.Manager, err = kvmanager.Start(o); err != nil {
		return err
	}
	p.Stops(p.Manager.Stop)
	p.At[api] = p.Manager.HTTPAddress()
	if o.ZMQBind != "" {
		p.At[events] = strings.TrimPrefix(p.Manager.ZMQEndpoint(), "tcp://")
	}
	return nil
}

// RestartSidecar cuts the sidecar's requests and restarts it at its address.
func (p *Pod) RestartSidecar() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Sidecar.Stop(now); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	x, err := sidecar.Start(p.options)
	if err == nil {
		p.Sidecar = x
	}
	return err
}

// Stops adds a function that stops a process of the pod.
func (p *Pod) Stops(stop func(context.Context) error) { p.stops = append(p.stops, stop) }

// Stop stops the pod's processes, the last one first. Its requests may finish until ctx ends.
func (p *Pod) Stop(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(p.stops) {
		errs = append(errs, stop(ctx))
	}
	p.addresses.Return(p.number)
	return errors.Join(errs...)
}

// StopPods stops pods, all at once.
func StopPods(ctx context.Context, pods []*Pod) error {
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { errs[i] = p.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
