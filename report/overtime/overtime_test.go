package overtime

import (
	"math"
	"strings"
	"testing"
)

// In the second half of this run half of the requests miss their SLO and some are refused, while servers come.
func drift() *Run {
	o := &Run{Width: 2}
	for i := range 100 {
		x := Stretch{From: float64(2 * i), Sent: 10, Ended: 10, Good: 10, Ready: 1 + i/50}
		if i >= 50 {
			x.Good, x.Refused = 5, 2
		}
		o.Stretches = append(o.Stretches, x)
	}
	return o
}

func TestLines(t *testing.T) {
	got := drift().Lines()
	for i, x := range []struct{ begins, says string }{{"█", "sent, to 5/s; until 200s"},
		{"█", "good, 50% to 100%"}, {" ", "refused, to 1/s"}, {"▄", "servers ready, 1 to 2"}} {
		if !strings.HasPrefix(got[i], x.begins) || !strings.HasSuffix(got[i], "  "+x.says) {
			t.Errorf("line %d is %q, expected blocks from %s and %s", i, got[i], x.begins, x.says)
		}
		if n := len([]rune(got[i])); n > 69 {
			t.Errorf("line %d has %d columns: %q", i, n, got[i])
		}
	}
	if !strings.Contains(got[1], "▇▄▄▄") {
		t.Errorf("the share of good requests does not halve: %q", got[1])
	}
	if got := (*Run)(nil).Lines(); got != nil {
		t.Errorf("nothing is shown as %q", got)
	}
}

// Attainment changes only where enough requests ended to know it.
func TestChanges(t *testing.T) {
	if !drift().Changes() {
		t.Error("half of the requests are not seen to miss")
	}
	few := &Run{Width: 1, Stretches: []Stretch{{Ended: 3, Good: 3}, {Ended: 3}, {Ended: 30, Good: 30}}}
	if few.Changes() {
		t.Error("three requests are a change")
	}
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	o := &Run{Width: 0.5, Stretches: []Stretch{{Sent: 3}, {From: 0.5, Ended: 3, Good: 2, Refused: 1, Ready: 4}}}
	if err := o.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	want := "from_seconds,sent,ended,good,attainment,refused,servers_ready\n0,3,0,0,,0,0\n0.5,0,3,2,0.6667,1,4\n"
	if b.String() != want {
		t.Errorf("%s\nexpected\n%s", &b, want)
	}
	if !math.IsNaN(o.Stretches[0].attainment()) {
		t.Error("an empty stretch has an attainment")
	}
}
