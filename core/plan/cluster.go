package plan

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
)

// Cluster has the Gateways of a Program that manifests describe, and the processes around them. Compile makes it from
// objects, and Diff finds the difference that an edit makes.
type Cluster struct {
	Objects *gateway.Set
	// Program is Envoy's part. Its notes and mistakes are those of the whole Cluster.
	Program *gateway.Program
	// Pods have the order of the objects; Pickers and Routers have the order of the Program.
	Pods    []Pod
	Pools   []*PoolPicker
	Pickers []PickerPod
	Routers []RouterPod
	// Scaled are the rules of the workloads with an autoscaler, by the workloads' keys.
	Scaled map[string]*Scaling
}

// Pod is a pod that answers requests.
type Pod struct {
	Workload *gateway.Workload
	// Replica is its number among the workload's pods.
	Replica int
	// Container is the one that answers, and Role its role.
	Container *gateway.Container
	Role      gateway.Role
	// Programs are those of its containers that run; a sidecar is the last one.
	Programs []Program
	// Ports are all ports where a stand-in listens, and further ones of a model server. A pod that runs lists all its
	// ports.
	Ports []int
	// Events is the address to which its model server sends KV events, as host:port. The executor sets it.
	Events string
}

// Program is a program of a pod: a model server or render server, a KV-Cache Manager, a latency predictor, a stand-in,
// or a sidecar.
type Program struct {
	Role gateway.Role
	// Container has its command line and environment.
	Container *gateway.Container
	// Ports are those of a latency predictor: its training server's, then its prediction servers'.
	Ports []int
}

// PoolPicker is a pool's endpoint picker.
type PoolPicker struct {
	Backend *gateway.Backend
	// Workload and Container run it. They are nil where windtunnel supplies it.
	Workload  *gateway.Workload
	Container *gateway.Container
	// Config is the text of its EndpointPickerConfig, nil for the default one, and File is where that stands.
	Config []byte
	File   string
	// Replicas are its processes. Envoy asks the first Asked of them.
	Replicas, Asked int
	// Cut means that Envoy reaches none of them.
	Cut bool
}

// PickerPod is a replica of a pool's endpoint picker.
type PickerPod struct {
	*PoolPicker
	Replica int
}

// RouterPod is a replica of a body-based router.
type RouterPod struct {
	*gateway.BodyRouter
	Replica int
}

// Scaling is an autoscaler's rule for a workload.
type Scaling struct {
	gateway.Scaling
	Config autoscaler.Config
}

// Options configure Compile.
type Options struct {
	gateway.Options
	// Ready are the numbers of the pods of workloads with an autoscaler, by the workloads' keys. A workload that is not
	// in it begins with the number of replicas in its object.
	Ready map[string][]int
	// OwnAddresses says that each pod has an address, so that its ports are those of the manifests.
	OwnAddresses bool
}

// Compile returns what a Set's objects run. Program.Mistakes has all mistakes that show when objects are combined.
func Compile(s *gateway.Set, o Options) *Cluster {
	p := gateway.Build(s, o.Options)
	c := &Cluster{Objects: s, Program: p, Scaled: map[string]*Scaling{}}
	if len(p.Gateways) == 0 && c.Serves() {
		p.Notes = append(p.Notes, "there is no Gateway and no route: the pods answer at their own addresses alone")
	}
	c.scalings()
	for _, b := range p.Backends {
		if b.Pool != nil {
			c.pool(b)
		}
	}
	for _, r := range p.Routers {
		for i := range r.Workload.Replicas {
			c.Routers = append(c.Routers, RouterPod{r, i})
		}
	}
	for i := range s.Workloads {
		c.pods(&s.Workloads[i], &o)
	}
	return c
}

func (c *Cluster) mistake(err error) { c.Program.Mistakes = errors.Join(c.Program.Mistakes, err) }

// scalings reads the autoscalers.
func (c *Cluster) scalings() {
	all, notes := c.Objects.Scalings()
	c.Program.Notes = append(c.Program.Notes, notes...)
	for _, x := range all {
		read, err := x.Read()
		if err != nil {
			c.mistake(err)
			continue
		}
		c.Program.Notes = append(c.Program.Notes, read.Notes...)
		read.Config.Name = x.Workload.Name
		c.Scaled[x.Workload.Key()] = &Scaling{x, read.Config}
	}
}

// pool adds a pool's endpoint picker.
func (c *Cluster) pool(b *gateway.Backend) {
	x := &PoolPicker{Backend: b}
	x.Workload, x.Container = c.Objects.PickerOf(b)
	x.Replicas, x.Asked = c.Objects.PickerReplicas(b)
	var note string
	var err error
	x.Config, x.File, note, err = c.Objects.PickerConfig(b)
	if note != "" {
		c.Program.Notes = append(c.Program.Notes, note)
	}
	x.Cut = cut(c.Objects, b.Picker)
	c.mistake(err)
	c.Pools = append(c.Pools, x)
	for i := range x.Replicas {
		c.Pickers = append(c.Pickers, PickerPod{x, i})
	}
}

// cut reports whether Envoy cannot reach a pool's endpoint picker, although the picker runs: its Service has no such
// port.
func cut(s *gateway.Set, p *gateway.PickerService) bool {
	if p == nil || p.Port == 0 {
		return false
	}
	service := s.Service(p.Namespace, p.Name)
	if service == nil || len(service.Ports) == 0 {
		return false
	}
	_, found := service.Port(p.Port)
	return !found
}

// pods adds a workload's pods.
func (c *Cluster) pods(w *gateway.Workload, o *Options) {
	p := Pod{Workload: w}
	if p.Container, p.Role = w.Serves(); p.Container == nil {
		return
	}
	p.Programs = programs(w, p.Container)
	switch {
	case p.Role == gateway.RoleOther:
		p.Ports = standInPorts(c.Objects, w)
	case p.Role == gateway.RoleServer && w.With(gateway.RoleSidecar) == nil && o.OwnAddresses:
		p.Ports = c.scraped(w)
	}
	numbers, ready := o.Ready[w.Key()]
	if !ready || c.Scaled[w.Key()] == nil {
		numbers = nil
		for i := range w.Replicas {
			numbers = append(numbers, i)
		}
	}
	for _, p.Replica = range numbers {
		c.Pods = append(c.Pods, p)
	}
}

// The default ports of a latency predictor's servers.
const (
	trainingPort   = 8000
	predictionPort = 8001
)

// programs returns what runs in a workload's pods, whose main container answers requests. All containers of a latency
// predictor are one program, which always has a training server.
func programs(w *gateway.Workload, main *gateway.Container) (out []Program) {
	predictor := Program{Role: gateway.RolePredictor, Ports: []int{trainingPort},
		Container: cmp.Or(w.With(gateway.RoleTrainer), w.With(gateway.RolePredictor))}
	for i := range w.Containers {
		c := &w.Containers[i]
		port := 0
		if text, given := c.Flag("port"); given {
			port, _ = strconv.Atoi(text) // the default where it is no number
		} else if len(c.Ports) > 0 {
			port = c.Ports[0].Number
		}
		switch r := c.Role(); {
		case r == gateway.RoleTrainer:
			predictor.Ports[0] = cmp.Or(port, trainingPort)
		case r == gateway.RolePredictor:
			predictor.Ports = append(predictor.Ports, cmp.Or(port, predictionPort))
		case r == gateway.RoleRenderer, c == main:
			out = append(out, Program{Role: r, Container: c})
		}
	}
	if predictor.Container != nil {
		out = append(out, predictor)
	}
	if c := w.With(gateway.RoleSidecar); c != nil {
		out = append(out, Program{Role: gateway.RoleSidecar, Container: c})
	}
	return out
}

// standInPorts returns the ports of a pod whose containers are not simulated: the ports that the containers name, and
// those to which Services send requests, because a container need not name its ports.
func standInPorts(s *gateway.Set, w *gateway.Workload) (out []int) {
	for i := range w.Containers {
		if w.Containers[i].Role() != gateway.RoleOther {
			continue
		}
		for _, x := range w.Containers[i].Ports {
			out = append(out, x.Number)
		}
	}
	for i := range s.Services {
		v := &s.Services[i]
		if v.Namespace != w.Namespace || len(v.Selector) == 0 || !v.Selector.Matches(w.Pods) {
			continue
		}
		for _, x := range v.Ports {
			if x.TargetNumber != 0 {
				out = append(out, x.TargetNumber)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// scraped returns the port at which a pool's picker scrapes a workload's pods, if its configuration names one.
func (c *Cluster) scraped(w *gateway.Workload) []int {
	for _, x := range c.Pools {
		p := x.Backend.Pool
		if p.Namespace == w.Namespace && len(p.Selector) > 0 && p.Selector.Matches(w.Pods) {
			if port, err := strconv.Atoi(ScrapePort(x.File, x.Config, nil)); err == nil {
				return []int{port}
			}
		}
	}
	return nil
}

// ScrapePort returns the port of pods at which a picker with this EndpointPickerConfig scrapes metrics, as document
// 003's scrapers do. It is "" where the configuration, nil for the default one, names no port or has mistakes. Plug-ins
// nil are the built-in ones.
func ScrapePort(file string, text []byte, all picker.Registry) string {
	if text == nil {
		return ""
	}
	if all == nil {
		all = plugins.Builtin()
	}
	read, err := config.Read(file, text)
	if err != nil {
		return ""
	}
	built, err := picker.New(read, all, picker.Options{AllowExperimental: true})
	if err != nil {
		return ""
	}
	for _, x := range built.Scrapes() {
		if port := x.Source.Scrape().Port; port != "" {
			return port
		}
	}
	return ""
}

// Serves reports whether there is something to serve: a Gateway, or without any Gateway and route among the objects
// pods alone.
func (c *Cluster) Serves() bool {
	return len(c.Program.Gateways) > 0 ||
		len(c.Objects.Gateways)+len(c.Objects.Routes) == 0 && slices.ContainsFunc(c.Objects.Workloads,
			func(w gateway.Workload) bool { x, _ := w.Serves(); return x != nil })
}

// Taken says, for each workload, how many pods it has and which program each of its containers is taken for.
func (c *Cluster) Taken() (out []string) {
	for i := range c.Objects.Workloads {
		w := &c.Objects.Workloads[i]
		serves, _ := w.Serves()
		var parts []string
		for k := range w.Containers {
			x := &w.Containers[k]
			r, by := x.Taken()
			part := fmt.Sprintf("%s (container %s, by its %s)", r, x.Name, by)
			if r == gateway.RoleOther {
				part = fmt.Sprintf("image %s, which nothing here simulates (container %s)", x.Image, x.Name)
				if x == serves {
					part += ": a server that answers with what it was asked"
				}
			}
			parts = append(parts, part)
		}
		what := fmt.Sprintf("%d × %s", w.Replicas, strings.Join(parts, ", "))
		if x := c.Scaled[w.Key()]; x != nil {
			what += fmt.Sprintf(", then %d to %d by %s %s", x.Config.Min, x.Config.Max, x.Kind, x.Name)
		}
		out = append(out, fmt.Sprintf("%s %s/%s: %s", w.Kind, w.Namespace, w.Name, what))
	}
	return out
}

// Key names the pod. Pods with the same key are interchangeable.
func (p Pod) Key() string { return fmt.Sprintf("%s/%d", p.Workload.Key(), p.Replica) }

// Name is the pod's name.
func (p Pod) Name() string { return p.Workload.PodName(p.Replica) }

// Runs reports whether a running pod serves as p: it has the same containers, listens on the ports, and sends its
// events to the same address.
func (p Pod) Runs(running Pod) bool {
	bare := func(w *gateway.Workload) []gateway.Container {
		list := slices.Clone(w.Containers)
		for i := range list {
			list[i].At = p.Workload.At
		}
		return list
	}
	return p.Events == running.Events && reflect.DeepEqual(bare(p.Workload), bare(running.Workload)) &&
		reflect.DeepEqual(p.Workload.Volumes, running.Workload.Volumes) &&
		!slices.ContainsFunc(p.Ports, func(n int) bool { return !slices.Contains(running.Ports, n) })
}

// Key names the replica.
func (p PickerPod) Key() string { return fmt.Sprintf("%s/%d", p.Backend.Key, p.Replica) }

// Name is the pod's name.
func (p PickerPod) Name() string {
	if p.Workload != nil {
		return p.Workload.PodName(p.Replica)
	}
	return fmt.Sprintf("%s-epp-%d", p.Backend.Name, p.Replica)
}

// Place returns the namespace and the name of the picker's pod, and the name of its container. A supplied picker runs
// in its pool's namespace.
func (p PickerPod) Place() (namespace, pod, container string) {
	if p.Workload == nil {
		return p.Backend.Namespace, p.Name(), "epp"
	}
	return p.Workload.Namespace, p.Name(), p.Container.Name
}

// ClientLimits are the parameters of the picker's client-headers plug-in: the strictest limits of the routes to the
// pool.
func (p *PoolPicker) ClientLimits() string {
	b := p.Backend
	return fmt.Sprintf(`{"maxTimeout": "%s", "maxRetries": %d}`, time.Duration(b.MaxTimeout), b.MaxRetries)
}

// Runs reports whether a running picker serves as p. Its configuration may differ, since it takes another one over.
func (p PickerPod) Runs(running PickerPod) bool {
	line := func(x *gateway.Container) []string {
		if x == nil {
			return nil
		}
		return x.Line()
	}
	return p.ClientLimits() == running.ClientLimits() && slices.Equal(line(p.Container), line(running.Container))
}

// Key names the replica.
func (r RouterPod) Key() string { return fmt.Sprintf("%s/%d", r.BodyRouter.Key, r.Replica) }

// Runs reports that every running router with the same key serves as r: it takes other routes over.
func (r RouterPod) Runs(RouterPod) bool { return true }

// Change lists processes of one kind by what becomes of them. Kept ones take over what changed for them.
type Change[P any] struct{ Start, Keep, Stop []P }

// Diff returns the change that makes the processes that now lists of those that run. Processes have the same key where
// one takes the place of the other.
func Diff[P interface {
	Key() string
	Runs(running P) bool
}](running, now []P) (c Change[P]) {
	by := map[string]P{}
	for _, p := range running {
		by[p.Key()] = p
	}
	for _, p := range now {
		if was, runs := by[p.Key()]; runs && p.Runs(was) {
			c.Keep = append(c.Keep, p)
			delete(by, p.Key())
		} else {
			c.Start = append(c.Start, p)
		}
	}
	for _, p := range running {
		if _, stops := by[p.Key()]; stops {
			c.Stop = append(c.Stop, p)
		}
	}
	return c
}
