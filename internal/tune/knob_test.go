package tune

import (
	"strings"
	"testing"
)

func TestParseKnob(t *testing.T) {
	for text, want := range map[string]string{
		"pools[0].replicas=2..4":     "2 2 4 4",
		"workload.rate=log:1..100":   "1 3 32 100",
		"workload.rate=0,log:1..100": "-",
		"workload.rate=log:0,1..100": "0 2 26 99",
		"workload.rate=0.5..1.5":     "0.5 0.75 1.2 1.5",
		"pools[0].batching=a,b":      "a a b b",
		"pools[0].replicas=4..2":     "the range is empty",
		"pools[0].replicas=4":        "there is one value",
		"workload.rate=log:0..5":     "a range that reaches 0",
		"workload.rate=x..5":         "no two numbers",
		"pools[x].replicas=2..4":     "is no path",
		"workload.rate=NaN..5":       "the range is empty",
		"workload.rate":              "has no =",
	} {
		k, err := ParseKnob(text)
		if err != nil {
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--vary "+text) {
				t.Errorf("%s: found %v; expected %s", text, err, want)
			}
			continue
		}
		var got []string
		for _, at := range []float64{0, 0.25, 0.75, 0.999} {
			v := k.text(at)
			got = append(got, v)
			if back, ok := k.at(v); !ok || k.text(back) != v {
				t.Errorf("%s: %s is at %v, %v, which is %s", text, v, back, ok, k.text(back))
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: found %s; expected %s", text, s, want)
		}
	}
}
