package autoscaler

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

// What kubernetes.io's page on horizontal pod autoscaling, and the controller's own tests, say of
// single metrics.
func TestReplicas(t *testing.T) {
	b := DefaultBehavior()
	for _, x := range []struct {
		name              string
		kind              TargetKind
		figure, target    int64
		spec, have, ready int
		want              int
	}{
		{"twice the target doubles", AverageValue, 200_000, 100_000, 1, 1, 1, 2},
		{"half the target halves", AverageValue, 100_000, 100_000, 2, 2, 2, 1},
		{"within a tenth above nothing changes", AverageValue, 330_000, 100_000, 3, 3, 3, 3},
		{"just beyond it does", AverageValue, 331_000, 100_000, 3, 3, 3, 4},
		{"within a tenth below nothing changes", AverageValue, 270_000, 100_000, 3, 3, 3, 3},
		{"nothing asks for none", AverageValue, 0, 16_000, 4, 4, 4, 0},
		{"replicas that start count as there", AverageValue, 128_000, 16_000, 8, 8, 2, 8},
		{"a value counts by those that are ready", Value, 200_000, 100_000, 4, 4, 3, 6},
		{"a value where there are none", Value, 250_000, 100_000, 0, 0, 0, 3},
		{"a value within a tenth", Value, 105_000, 100_000, 4, 4, 3, 4},
		{"pool saturation never asks for more than a few, whatever the pool's size", AverageValue, 1_000, 700, 8, 8, 8,
			2},
	} {
		if got := b.replicas(x.kind, x.figure, x.target, x.spec, x.have, x.ready); got != x.want {
			t.Errorf("%s: %d, expected %d", x.name, got, x.want)
		}
	}
}

// Pods without figures count as at their target on the way down and as idle on the way up. If that reverses the
// direction, nothing changes.
func TestReplicasPerPod(t *testing.T) {
	b := DefaultBehavior()
	for _, x := range []struct {
		name                   string
		figures                []int64
		spec, missing, unready int
		want                   int
		ok                     bool
	}{
		{"twice the target", []int64{20, 20}, 2, 0, 0, 4, true},
		{"at the target", []int64{10, 10}, 2, 0, 0, 2, true},
		{"half of it", []int64{5, 5, 5, 5}, 4, 0, 0, 2, true},
		{"missing ones dampen the way up", []int64{30, 30}, 4, 2, 0, 6, true},
		{"so much that nothing changes", []int64{15, 15}, 4, 2, 0, 4, true},
		{"missing ones dampen the way down", []int64{0, 0}, 4, 2, 0, 2, true},
		{"those that are not ready dampen the way up", []int64{20, 20}, 4, 0, 2, 4, true},
		{"so much that it would be the way down", []int64{15, 15}, 2, 0, 2, 2, true},
		{"never down where each has too much", []int64{30}, 4, 1, 0, 4, true},
		{"and not the way down", []int64{5, 5}, 4, 0, 2, 1, true},
		{"nobody tells anything", nil, 2, 2, 0, 0, false},
	} {
		got, ok := b.perPod(x.figures, 10, x.spec, x.missing, x.unready)
		if got != x.want || ok != x.ok {
			t.Errorf("%s: %d %v, expected %d %v", x.name, got, ok, x.want, x.ok)
		}
	}
}

// How much the policies allow: the documented examples.
func TestPolicies(t *testing.T) {
	s := machine.Second
	for _, x := range []struct {
		name        string
		policies    []Policy
		which       SelectPolicy
		ups, downs  []change
		current, to int
		want        int
	}{
		{"the default doubles", DefaultBehavior().Up.Policies, MaxChange, nil, nil, 10, 100, 20},
		{"or adds four", DefaultBehavior().Up.Policies, MaxChange, nil, nil, 1, 100, 5},
		{"the smaller of both", DefaultBehavior().Up.Policies, MinChange, nil, nil, 10, 100, 14},
		{"what was added in the period counts", []Policy{{Pods, 4, 60 * s}}, MaxChange, []change{{-30 * s, 3}}, nil, 8,
			100, 9},
		{"what was added before does not", []Policy{{Pods, 4, 60 * s}}, MaxChange, []change{{-60 * s, 3}}, nil, 8, 100,
			12},
		{"what was taken away in the period may come back", []Policy{{Pods, 4, 60 * s}}, MaxChange, nil,
			[]change{{-30 * s, 2}}, 8, 100, 14},
		{"percent rounds up", []Policy{{Percent, 10, 60 * s}}, MaxChange, nil, nil, 5, 100, 6},
		{"no change at all", []Policy{{Percent, 100, 60 * s}}, Disabled, nil, nil, 5, 100, 5},
		{"never down because too much came", []Policy{{Pods, 1, 60 * s}}, MaxChange, []change{{-10 * s, 5}}, nil, 8,
			100, 8},
		{"down by a tenth, truncated: 80 to 72", []Policy{{Percent, 10, 60 * s}}, MaxChange, nil, nil, 80, 0, 72},
		{"down by four a minute: 80 to 76", []Policy{{Pods, 4, 60 * s}}, MaxChange, nil, nil, 80, 0, 76},
		{"the larger of both: 80 to 72", []Policy{{Pods, 4, 60 * s}, {Percent, 10, 60 * s}}, MaxChange, nil, nil, 80, 0,
			72},
		{"the smaller of both: 80 to 76", []Policy{{Pods, 4, 60 * s}, {Percent, 10, 60 * s}}, MinChange, nil, nil, 80,
			0, 76},
		{"what went in the period counts", []Policy{{Pods, 4, 60 * s}}, MaxChange, nil, []change{{-30 * s, 3}}, 80, 0,
			79},
	} {
		m := memory{ups: x.ups, downs: x.downs}
		b := DefaultBehavior()
		b.Up.Policies, b.Up.SelectPolicy, b.Down.Policies, b.Down.SelectPolicy = x.policies, x.which, x.policies,
			x.which
		if got := m.limited(0, &b, x.current, x.to, 0, 1000); got != x.want {
			t.Errorf("%s: from %d to %d goes to %d, expected %d", x.name, x.current, x.to, got, x.want)
		}
	}
}

// Down goes to the highest recommendation of its window, up to the lowest of its own, and both
// windows begin with the replicas that there were.
func TestStabilization(t *testing.T) {
	b := DefaultBehavior()
	b.Up.Window = 60 * machine.Second
	var m memory
	current := 5
	for _, x := range []struct {
		at       machine.Time // in seconds
		to, want int
	}{
		{0, 10, 5},   // up waits: 5 is the lowest of its window
		{30, 10, 5},  // still
		{61, 10, 10}, // the first one has passed
		{90, 3, 10},  // down waits for the 10s
		{360, 3, 10}, // that of 61 s counts until 361 s
		{362, 3, 3},
		{370, 2, 3},
	} {
		got := m.stabilized(x.at*machine.Second, &b, current, x.to)
		if got != x.want {
			t.Errorf("at %d s of %d to %d: %d, expected %d", x.at, current, x.to, got, x.want)
		}
		current = got
	}
}

// Whatever is asked for, the replicas stay within their bounds, and change no faster than the
// fastest policy allows.
func TestReplicasStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := DefaultBehavior()
		b.Up.Window = machine.Time(rapid.IntRange(0, 300).Draw(t, "window")) * machine.Second
		b.Up.Policies = []Policy{
			{Pods, rapid.IntRange(1, 5).Draw(t, "pods"),
				machine.Time(rapid.IntRange(1, 60).Draw(t, "period")) * machine.Second}}
		least := rapid.IntRange(1, 4).Draw(t, "least")
		greatest := rapid.IntRange(least, 12).Draw(t, "greatest")
		var m memory
		now, current := machine.Time(0), rapid.IntRange(least, greatest).Draw(t, "replicas")
		for range rapid.IntRange(1, 40).Draw(t, "syncs") {
			now += machine.Time(rapid.IntRange(1, 30).Draw(t, "gap")) * machine.Second
			asked := rapid.IntRange(0, 50).Draw(t, "asked")
			to := m.limited(now, &b, current, m.stabilized(now, &b, current, asked), least, greatest)
			switch {
			case to < least || to > greatest:
				t.Fatalf("from %d to %d, out of %d to %d", current, to, least, greatest)
			case to > current && asked <= current, to < current && asked >= current:
				t.Fatalf("from %d to %d, where %d was asked for", current, to, asked)
			case to > current+b.Up.Policies[0].Value+within(m.downs, now, b.Up.Policies[0].Period):
				t.Fatalf("from %d to %d, with %v", current, to, b.Up.Policies[0])
			}
			m.changed(now, &b, current, to)
			current = to
		}
	})
}

// CPU and memory scale nothing here, in whichever version and form they are given, and are no mistake.
func TestMetricsOfMachines(t *testing.T) {
	for _, x := range []struct{ version, spec, says string }{
		{"v2", "{maxReplicas: 5, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, " +
			"averageUtilization: 80}}}]}", "spec.metrics[0] of type Resource has no effect"},
		{"v2", "{maxReplicas: 5, metrics: [{type: ContainerResource, containerResource: {name: memory}}]}",
			"spec.metrics[0] of type ContainerResource has no effect"},
		{"v2", "{maxReplicas: 5}", "Kubernetes uses CPU"},
		{"v1", "{maxReplicas: 5, targetCPUUtilizationPercentage: 80}", "targetCPUUtilizationPercentage has no effect"},
	} {
		got, err := ReadManifest("h.yaml", []byte("apiVersion: autoscaling/"+x.version+
			"\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: "+x.spec+"\n"))
		if err != nil {
			t.Error(err)
			continue
		}
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], x.says) || len(got.Config.Triggers) != 0 {
			t.Errorf("%s: %q, %d triggers", x.spec, got.Notes, len(got.Config.Triggers))
		}
	}
}
