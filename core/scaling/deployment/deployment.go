package deployment

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Config configures a Deployment.
type Config struct {
	// Name and Seed determine the start-up times.
	Name string
	Seed uint64
	// Places is the largest number of pods at one time, including those that leave; at least Replicas.
	Places int
	// Replicas is the number of pods that are ready at the beginning.
	Replicas int
	// Startup is the time from a pod's creation until it is ready: scheduling, image, weights.
	Startup dist.Dist
	// PreStop is how long a pod that leaves still takes requests from proxies that do not know yet, like a preStop hook
	// that sleeps.
	PreStop machine.Time
	// Grace is how long a pod that leaves may take until it has ended, including PreStop, as in
	// terminationGracePeriodSeconds.
	Grace machine.Time
}

// DefaultStartup returns the default start-up time of a model server.
func DefaultStartup() dist.Dist { return dist.Between(100*machine.Second, 240*machine.Second) }

// Phase is a phase in the life of a pod.
type Phase uint8

// The phases.
const (
	Absent   Phase = iota
	Starting       // created, and not ready
	Ready          // an endpoint
	Leaving        // not an endpoint, but takes requests from proxies that do not know yet
	Stopping       // terminated: it finishes its requests
)

// Kind is a kind of Effect.
type Kind uint8

// The kinds of effects, each about one pod.
const (
	Started Kind = iota // created
	Joined              // ready: it is an endpoint from now on
	Left                // no endpoint from now on
	Stopped             // terminated (SIGTERM): it takes no new request
	Ended               // it has finished its requests, and is gone
	Killed              // its grace is over: its requests break off
)

// Effect is something that happens to a pod.
type Effect struct {
	At   machine.Time
	Kind Kind
	// Pod is the index of the pod's place.
	Pod int
	// Was, for Left: the pod had been ready.
	Was bool
}

// Due returns the time of the effect.
func (e Effect) Due() machine.Time { return e.At }

// Message is an input of a Deployment: Scale, Evict or Idle.
type Message interface{ message() }

// Scale sets the number of pods, without those that leave.
type Scale struct{ Replicas int }

// Evict makes a pod leave. Grace, if above 0, replaces the Config's. With Replace, another pod starts; otherwise the
// number of pods falls by one. It has no effect on a pod that is absent or leaves already.
type Evict struct {
	Pod     int
	Grace   machine.Time
	Replace bool
}

// Idle reports that a Stopped pod has finished its requests.
type Idle struct{ Pod int }

func (Scale) message() {}
func (Evict) message() {}
func (Idle) message()  {}

type pod struct {
	phase  Phase
	serial uint64       // of its start; the pods of the beginning have the lowest
	ready  machine.Time // when it became ready
	due    machine.Time // of its next phase; Never is none
	killed machine.Time // the end of its grace
}

// Deployment is a machine.Machine[Message, *machine.Effects[Effect]].
type Deployment struct {
	c       Config
	now     machine.Time
	pods    []pod
	want    int
	serials uint64
}

// New returns a Deployment whose first pods are ready.
func New(c Config) *Deployment {
	d := &Deployment{c: c, pods: make([]pod, max(c.Places, c.Replicas)), want: c.Replicas}
	for i := range d.pods {
		d.pods[i].due = machine.Never
		if i < c.Replicas {
			d.pods[i].phase = Ready
			d.serials++
			d.pods[i].serial = d.serials
		}
	}
	return d
}

// Phase returns the phase of a pod.
func (d *Deployment) Phase(i int) Phase { return d.pods[i].phase }

// Places returns the largest number of pods at one time.
func (d *Deployment) Places() int { return len(d.pods) }

// Status is the status of a Deployment.
type Status struct {
	// Wanted is spec.replicas. Replicas counts the pods that were created and do not leave, Ready the ready ones of
	// them.
	Wanted, Replicas, Ready int
	// Ending counts the pods that leave.
	Ending int
}

// Status returns the current status.
func (d *Deployment) Status() Status {
	s := Status{Wanted: d.want}
	for i := range d.pods {
		switch d.pods[i].phase {
		case Starting:
			s.Replicas++
		case Ready:
			s.Replicas++
			s.Ready++
		case Leaving, Stopping:
			s.Ending++
		}
	}
	return s
}

// Input advances to now, and takes a message.
func (d *Deployment) Input(now machine.Time, m Message, fx *machine.Effects[Effect]) {
	d.Advance(now, fx)
	switch x := m.(type) {
	case Scale:
		d.want = max(0, x.Replicas)
		d.reconcile(fx)
	case Evict:
		if x.Pod >= 0 && x.Pod < len(d.pods) && (d.pods[x.Pod].phase == Starting || d.pods[x.Pod].phase == Ready) {
			if !x.Replace {
				d.want--
			}
			d.leave(x.Pod, cmp.Or(max(x.Grace, 0), d.c.Grace), fx)
			d.reconcile(fx)
		}
	case Idle:
		if x.Pod >= 0 && x.Pod < len(d.pods) && d.pods[x.Pod].phase == Stopping {
			d.end(x.Pod, Ended, fx)
			d.reconcile(fx)
		}
	}
}

// Next returns the time of the next change of a phase.
func (d *Deployment) Next() (machine.Time, bool) {
	at := machine.Never
	for i := range d.pods {
		at = min(at, d.pods[i].due)
	}
	return at, at != machine.Never
}

// Advance changes the phases up to now.
func (d *Deployment) Advance(now machine.Time, fx *machine.Effects[Effect]) {
	for {
		at, ok := d.Next()
		if !ok || at > now {
			break
		}
		d.now = max(d.now, at)
		for i := range d.pods {
			if p := &d.pods[i]; p.due <= d.now {
				d.due(i, p, fx)
			}
		}
		d.reconcile(fx)
	}
	d.now = max(d.now, now)
}

func (d *Deployment) due(i int, p *pod, fx *machine.Effects[Effect]) {
	switch p.phase {
	case Starting:
		p.phase, p.ready, p.due = Ready, d.now, machine.Never
		d.emit(i, Joined, fx)
	case Leaving:
		p.phase, p.due = Stopping, p.killed
		d.emit(i, Stopped, fx)
	case Stopping:
		d.end(i, Killed, fx)
	}
}

func (d *Deployment) emit(i int, k Kind, fx *machine.Effects[Effect]) {
	fx.Add(Effect{At: d.now, Kind: k, Pod: i})
}

// reconcile starts pods if there are too few, as far as there are places, and makes pods leave if there are too many.
func (d *Deployment) reconcile(fx *machine.Effects[Effect]) {
	have := d.Status().Replicas
	for i := 0; have < d.want && i < len(d.pods); i++ {
		p := &d.pods[i]
		if p.phase != Absent {
			continue
		}
		d.serials++
		draw := machine.NewDraw(d.c.Seed, d.c.Name, "startup", d.serials)
		*p = pod{phase: Starting, serial: d.serials, due: d.now.Add(max(1, d.c.Startup.SampleTime(&draw)))}
		d.emit(i, Started, fx)
		have++
	}
	for ; have > d.want; have-- {
		d.leave(d.first(), d.c.Grace, fx)
	}
}

// leave makes a pod leave. A pod that was not ready ends at once.
func (d *Deployment) leave(i int, grace machine.Time, fx *machine.Effects[Effect]) {
	p := &d.pods[i]
	was := p.phase == Ready
	fx.Add(Effect{At: d.now, Kind: Left, Pod: i, Was: was})
	if !was {
		d.end(i, Ended, fx)
		return
	}
	// At least 1 ns later, after all other effects of now.
	p.phase, p.killed = Leaving, d.now.Add(max(2, grace))
	p.due = min(d.now.Add(max(1, d.c.PreStop)), p.killed-1)
}

func (d *Deployment) end(i int, k Kind, fx *machine.Effects[Effect]) {
	d.pods[i] = pod{due: machine.Never}
	d.emit(i, k, fx)
}

// first returns the pod that leaves first, by the ReplicaSet controller's rule: pods that are not ready before ready
// ones, the youngest first; then pods that have been ready for a shorter time, compared by the power of two of the
// seconds, with chance within one power (LogarithmicScaleDown).
func (d *Deployment) first() int {
	var list []int
	for i := range d.pods {
		if p := d.pods[i].phase; p == Starting || p == Ready {
			list = append(list, i)
		}
	}
	return slices.MinFunc(list, func(a, b int) int {
		x, y := &d.pods[a], &d.pods[b]
		if x.phase != y.phase {
			return cmp.Compare(x.phase, y.phase)
		}
		if x.phase == Starting {
			return cmp.Compare(y.serial, x.serial)
		}
		return cmp.Or(cmp.Compare(d.age(x), d.age(y)), cmp.Compare(d.chance(x), d.chance(y)))
	})
}

// age returns how long a pod has been ready, as the power of two of the seconds.
func (d *Deployment) age(p *pod) int { return bits.Len64(uint64((d.now - p.ready) / machine.Second)) }

// chance stands for a pod's UID.
func (d *Deployment) chance(p *pod) uint64 {
	draw := machine.NewDraw(d.c.Seed, d.c.Name, "uid", p.serial)
	return draw.Uint64()
}
