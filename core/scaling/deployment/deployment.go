package deployment

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Config is what a Deployment is made of.
type Config struct {
	// Name and Seed are what start-up times are drawn from.
	Name string
	Seed uint64
	// Places are how many pods there can be at once, those that leave included; at
	// least Replicas.
	Places int
	// Replicas are there from the beginning, ready.
	Replicas int
	// Startup is from a pod's creation until it is ready: scheduling, image, weights.
	Startup dist.Dist
	// PreStop is how long a pod that leaves goes on taking requests of those who do
	// not know yet, as a preStop hook that sleeps has it.
	PreStop machine.Time
	// Grace is how long a pod may take from then on until it has ended by itself; PreStop
	// is part of it, as in terminationGracePeriodSeconds.
	Grace machine.Time
}

// DefaultStartup returns how long a model server takes until it is ready where nobody says it.
func DefaultStartup() dist.Dist { return dist.Between(100*machine.Second, 240*machine.Second) }

// Phase is where a pod is in its life.
type Phase uint8

// The phases.
const (
	Absent   Phase = iota
	Starting       // created, and not ready
	Ready          // an endpoint
	Leaving        // no endpoint any more; it still takes requests of those who do not know
	Stopping       // it has been told to end, and finishes what it has
)

// What happens to pods.
type Kind uint8

// The kinds of effects, each about one pod.
const (
	Started Kind = iota // created
	Joined              // ready: it is an endpoint from now on
	Left                // no endpoint from now on
	Stopped             // told to end (SIGTERM): it takes no new request
	Ended               // it has nothing to do any more, and is gone
	Killed              // its grace is over: what it still has breaks off
)

// Effect is something that happens to a pod.
type Effect struct {
	At   machine.Time
	Kind Kind
	// Pod is the number of its place.
	Pod int
	// Was is whether the pod had been ready, of Left.
	Was bool
}

// Due is when it happens.
func (e Effect) Due() machine.Time { return e.At }

// Message is what a Deployment is told: Scale, Evict or Idle.
type Message interface{ message() }

// Scale says how many pods there are to be. Those that leave do not count.
type Scale struct{ Replicas int }

// Evict has the pod with this number leave, whatever Scale says. Grace, if above 0, is in place
// of the Config's. With Replace another pod takes its place, else there is one fewer from
// then on. Nothing happens to a pod that is absent or leaves already.
type Evict struct {
	Pod     int
	Grace   machine.Time
	Replace bool
}

// Idle says that a pod which was Stopped has nothing in hand.
type Idle struct{ Pod int }

func (Scale) message() {}
func (Evict) message() {}
func (Idle) message()  {}

type pod struct {
	phase  Phase
	serial uint64       // of its start; those from the beginning have the lowest
	ready  machine.Time // when it was
	due    machine.Time // of its next phase by the clock; Never is none
	killed machine.Time // when its grace is over
}

// Deployment is a machine.Machine[Message, *machine.Effects[Effect]].
type Deployment struct {
	c       Config
	now     machine.Time
	pods    []pod
	want    int
	serials uint64
}

// New has its first pods ready.
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

// Phase is where the pod with a number is.
func (d *Deployment) Phase(i int) Phase { return d.pods[i].phase }

// Places returns how many pods there can be at once.
func (d *Deployment) Places() int { return len(d.pods) }

// Status is what a Deployment's status says.
type Status struct {
	// Wanted is spec.replicas, Replicas those that were created and do not leave, and Ready
	// those of them that are.
	Wanted, Replicas, Ready int
	// Ending are those that leave.
	Ending int
}

// Status is how it stands.
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

// Input plays what is due, and takes a message.
func (d *Deployment) Input(now machine.Time, m Message, fx *machine.Effects[Effect]) {
	d.Advance(now, fx)
	switch x := m.(type) {
	case Scale:
		d.want = max(0, x.Replicas)
		d.reconcile(fx)
	case Evict:
		if x.Pod >= 0 && x.Pod < len(d.pods) && (d.pods[x.Pod].phase == Starting || d.pods[x.Pod].phase == Ready) {
			grace := d.c.Grace
			if x.Grace > 0 {
				grace = x.Grace
			}
			if !x.Replace {
				d.want--
			}
			d.leave(x.Pod, grace, fx)
			d.reconcile(fx)
		}
	case Idle:
		if x.Pod >= 0 && x.Pod < len(d.pods) && d.pods[x.Pod].phase == Stopping {
			d.end(x.Pod, Ended, fx)
			d.reconcile(fx)
		}
	}
}

// Next is when the next pod is ready, is told to end, or is out of time.
func (d *Deployment) Next() (machine.Time, bool) {
	at := machine.Never
	for i := range d.pods {
		at = min(at, d.pods[i].due)
	}
	return at, at != machine.Never
}

// Advance plays what is due by now.
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

// reconcile starts pods where there are too few, as far as there are places, and has some
// leave where there are too many.
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

// leave has a pod leave. One that was not ready has nothing to finish.
func (d *Deployment) leave(i int, grace machine.Time, fx *machine.Effects[Effect]) {
	p := &d.pods[i]
	was := p.phase == Ready
	fx.Add(Effect{At: d.now, Kind: Left, Pod: i, Was: was})
	if !was {
		d.end(i, Ended, fx)
		return
	}
	// A moment later at the least, so that everything due now has been said.
	p.phase, p.killed = Leaving, d.now.Add(max(2, grace))
	p.due = min(d.now.Add(max(1, d.c.PreStop)), p.killed-1)
}

func (d *Deployment) end(i int, k Kind, fx *machine.Effects[Effect]) {
	d.pods[i] = pod{due: machine.Never}
	d.emit(i, k, fx)
}

// first returns the pod that goes first, by the ReplicaSet controller's rule: who is not
// ready before who is, and who has been ready for a shorter time. Times count by the power of
// two of their seconds, and within one chance decides (LogarithmicScaleDown); of those
// that are not ready the youngest goes.
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
		if c := cmp.Compare(d.age(x), d.age(y)); c != 0 {
			return c
		}
		return cmp.Compare(d.chance(x), d.chance(y))
	})
}

// age returns how long a pod has been ready, as the power of two of its seconds.
func (d *Deployment) age(p *pod) int { return bits.Len64(uint64((d.now - p.ready) / machine.Second)) }

// chance stands for a pod's UID.
func (d *Deployment) chance(p *pod) uint64 {
	draw := machine.NewDraw(d.c.Seed, d.c.Name, "uid", p.serial)
	return draw.Uint64()
}
