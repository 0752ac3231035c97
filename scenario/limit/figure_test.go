package limit

import (
	"slices"
	"strings"
	"testing"
)

// A figure is read as it is written, and again from what it writes.
func TestFigure(t *testing.T) {
	for text, want := range map[string][]string{
		"requests >= 5":                         {"requests"},
		"classes[chat].attainment>=0.95":        {"classes", "chat", "attainment"},
		"classes[].goodput <= 1e3":              {"classes", "", "goodput"},
		"refusals[epp: p99 <= 1.5s] <= 0":       {"refusals", "epp: p99 <= 1.5s"},
		"hops.epp.endpoint_picked >= 1":         {"hops", "epp", "endpoint_picked"},
		"endpoints[10.0.0.1:8000] <= 3":         {"endpoints", "10.0.0.1:8000"},
		"load[decode].utilisation.mean <= 0.85": {"load", "decode", "utilisation", "mean"},
	} {
		var f, again Figure
		if err := f.UnmarshalText([]byte(text)); err != nil || !slices.Equal(f.Path, want) ||
			f.AtLeast != strings.Contains(text, ">=") {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
		if err := again.UnmarshalText([]byte(f.String())); err != nil || !slices.Equal(f.Path, again.Path) ||
			f.Bound != again.Bound || f.AtLeast != again.AtLeast {
			t.Errorf("%s is written %s: %+v, %v", text, f, again, err)
		}
	}
	for _, text := range []string{"", "requests", "<= 3", "requests <= many", "requests <= NaN", "[a] <= 1",
		"a..b <= 1", "a[b <= 1", "a[b]c <= 1", "a.b.c.d.e.f.g.h.i <= 1", "a. <= 1"} {
		if f := (Figure{}); f.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
}

// What was found has four digits, and as many as needed where four would put it on the other side of its bound.
func TestFoundIsRounded(t *testing.T) {
	l := Limit{Measure: "ttft p99", Bounds: Bounds{Bound: 1.267}}
	for v, want := range map[float64]string{1.266943431: "1.2669s", 1.267: "1.267s", 1.2684321: "1.268s",
		0.2123456789: "212.3ms", 0: "0s"} {
		if got := l.Found(v); got != want {
			t.Errorf("%v is printed %s, expected %s", v, got, want)
		}
	}
	l = Limit{Measure: "requests/s", Bounds: Bounds{Bound: 2.5}}
	for v, want := range map[float64]string{1.23456789: "1.235", 2.49998: "2.49998", 12345: "12345"} {
		if got := l.Found(v); got != want {
			t.Errorf("a rate of %v is printed %s, expected %s", v, got, want)
		}
	}
}

func FuzzFigure(f *testing.F) {
	f.Add("classes[chat].attainment >= 0.95")
	f.Fuzz(func(t *testing.T, text string) {
		var x, again Figure
		if x.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(x.String())); err != nil || !slices.Equal(x.Path, again.Path) ||
			x.Bound != again.Bound {
			t.Errorf("%q is written %q: %+v, %v", text, x, again, err)
		}
	})
}
