package flowcontrol

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Programs are named by clients. However many are made up, those without work are
// bounded, the oldest go first, and one that works stays.
func TestMadeUpProgramsAreForgotten(t *testing.T) {
	p := newPrograms(DefaultProgram())
	p.get("works", 0).Running = 1
	const many = 3 * maxIdleFlows
	for i := range machine.Time(many) {
		p.get(fmt.Sprintf("made-up-%d", i), i)
		if i%maxIdleFlows == 0 {
			p.sweep(i)
		}
	}
	p.sweep(many)
	if n := len(p.byID); n > maxIdleFlows+1 {
		t.Errorf("%d programs are kept", n)
	}
	for id, want := range map[string]bool{"works": true, fmt.Sprint("made-up-", many-1): true, "made-up-1": false} {
		if p.byID[id] != nil != want {
			t.Errorf("%s is kept: %v, want %v", id, !want, want)
		}
	}
}

// Flows come to rest and leave it in any order.
func TestRestingFlows(t *testing.T) {
	p := &programAware{programs: newPrograms(DefaultProgram())}
	flows := make([]*flow, 10)
	for i := range flows {
		flows[i] = &flow{id: fmt.Sprint(i)}
		p.admit(flows[i])
	}
	for n, i := range []int{9, 0, 0, 4, 8, 1, 7, 2, 6, 3, 5} {
		p.forget(flows[i])
		for at, f := range p.resting {
			if f.restsAt != at+1 || f == flows[i] {
				t.Fatalf("after %d: flow %s is at %d and knows %d", n, f.id, at+1, f.restsAt)
			}
		}
	}
	if len(p.resting) > 0 {
		t.Errorf("%d flows still rest", len(p.resting))
	}
}
