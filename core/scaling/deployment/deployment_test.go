package deployment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

const second = machine.Second

func pods(replicas int) *Deployment {
	return New(Config{Name: "d", Seed: 1, Places: 6, Replicas: replicas, Startup: dist.Fixed(100 * second),
		PreStop: 5 * second, Grace: 30 * second})
}

var words = map[Kind]string{Started: "started", Joined: "joined", Left: "left", Stopped: "stopped", Ended: "ended",
	Killed: "killed"}

func say(fx *machine.Effects[Effect]) string {
	var out []string
	for _, e := range fx.List {
		out = append(out, fmt.Sprintf("%v %s %d", e.At, words[e.Kind], e.Pod))
	}
	fx.Reset()
	return strings.Join(out, ", ")
}

// A pod needs its startup time to join; one that leaves serves until its preStop is over, must then end, and ends once
// it is idle or its grace is over.
func TestLifeOfAPod(t *testing.T) {
	d, fx := pods(1), new(machine.Effects[Effect])
	step := func(what string, want string, f func()) {
		t.Helper()
		f()
		if got := say(fx); got != want {
			t.Errorf("%s: %s, expected %s", what, got, want)
		}
	}
	d.Input(10*second, Scale{2}, fx)
	if got := say(fx); got != "10s started 1" {
		t.Fatal(got)
	}
	step("it starts", "110s joined 1", func() { d.Advance(120*second, fx) })
	step("it is too many", "120s left 1", func() { d.Input(120*second, Scale{1}, fx) })
	if s := d.Status(); s != (Status{Wanted: 1, Replicas: 1, Ready: 1, Ending: 1}) {
		t.Errorf("status %+v", s)
	}
	step("it is told to end", "125s stopped 1", func() { d.Advance(130*second, fx) })
	step("it has finished", "131s ended 1", func() { d.Input(131*second, Idle{1}, fx) })
	step("another one", "200s started 1, 300s joined 1, 300s left 0, 305s stopped 0, 330s killed 0", func() {
		d.Input(200*second, Scale{2}, fx)
		d.Advance(300*second, fx)
		d.Input(300*second, Evict{Pod: 0}, fx)
		d.Advance(400*second, fx)
	})
	step("which nobody replaces", "", func() { d.Advance(1000*second, fx) })
	if s := d.Status(); s.Wanted != 1 || s.Ready != 1 {
		t.Errorf("status %+v", s)
	}
	step("one that is replaced", "1000s left 1, 1000s started 0, 1005s stopped 1, 1006s killed 1", func() {
		d.Input(1000*second, Evict{Pod: 1, Grace: 6 * second, Replace: true}, fx)
		d.Advance(1007*second, fx)
	})
}

// Pods that are not ready are removed first, the youngest before the others; then those that have been ready for the
// shortest time, by powers of two.
func TestWhoLeavesFirst(t *testing.T) {
	d, fx := pods(2), new(machine.Effects[Effect])
	d.Input(0, Scale{3}, fx)          // 2, ready at 100 s
	d.Input(150*second, Scale{4}, fx) // 3
	d.Input(160*second, Scale{5}, fx) // 4
	d.Advance(161*second, fx)
	fx.Reset()
	d.Input(200*second, Scale{2}, fx)
	if got := say(fx); got != "200s left 4, 200s ended 4, 200s left 3, 200s ended 3, 200s left 2" {
		t.Error(got)
	}
}

// Under any order of changes, evictions and idle pods, as many pods are created as are wanted and have a place, a pod's
// life has its order, and each that began ends or still runs.
func TestPodsAreConserved(t *testing.T) {
	next := map[string]string{"": "started", "started": "joined left", "joined": "left", "left": "stopped ended",
		"stopped": "ended killed", "ended": "started", "killed": "started"}
	rapid.Check(t, func(t *rapid.T) {
		d, fx := pods(rapid.IntRange(0, 6).Draw(t, "replicas")), new(machine.Effects[Effect])
		was := map[int]string{}
		for i := range d.Places() {
			if d.Phase(i) == Ready {
				was[i] = "joined"
			}
		}
		now := machine.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "messages") {
			now += machine.Time(rapid.IntRange(0, 40).Draw(t, "gap")) * second
			pod := rapid.IntRange(0, 6).Draw(t, "pod")
			switch rapid.IntRange(0, 3).Draw(t, "message") {
			case 0:
				d.Input(now, Scale{rapid.IntRange(0, 8).Draw(t, "wanted")}, fx)
			case 1:
				d.Input(now, Evict{Pod: pod, Replace: rapid.Bool().Draw(t, "replace")}, fx)
			default:
				d.Input(now, Idle{pod}, fx)
			}
			for _, e := range fx.List {
				k := words[e.Kind]
				if !strings.Contains(next[was[e.Pod]], k) {
					t.Fatalf("pod %d %s after it %s", e.Pod, k, was[e.Pod])
				}
				was[e.Pod] = k
			}
			fx.Reset()
			s := d.Status()
			if s.Ready > s.Replicas || s.Replicas > s.Wanted || s.Replicas < min(s.Wanted, d.Places()-s.Ending) {
				t.Fatalf("%+v of %d places", s, d.Places())
			}
		}
	})
}
