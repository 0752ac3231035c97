package stats

import (
	"testing"
	"time"
)

// Made-up metrics change with time as they say.
func TestWaves(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]float64{
		`"ramp:0:8:8s"`: {0, 4, 8}, `"rampreset:0:8:8s"`: {0, 4, 4}, `"squarewave:1:2:8s"`: {1, 2, 2},
		`"oscillate:0:2:8s"`: {0, 2, 2}, `7`: {7, 7, 7},
	} {
		var w Wave
		if err := w.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for i, at := range []time.Duration{0, 4 * time.Second, 12 * time.Second} {
			if got := w.at(at); got < want[i]-1e-9 || got > want[i]+1e-9 {
				t.Errorf("%s at %v: got %v, want %v", text, at, got, want[i])
			}
		}
	}
}

func FuzzFakeMetrics(f *testing.F) {
	f.Add([]byte(`{"running-requests":"oscillate:1:2:3s","kv-cache-usage":0.5}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ParseFakeMetrics(raw)
		if err != nil || m == nil {
			return
		}
		for _, w := range []*Wave{m.Running, m.Waiting, m.KVUsage} {
			if w != nil {
				if v := w.at(1234567890); !(v >= 0 && v <= 1e9) {
					t.Fatalf("%s gives %v", raw, v)
				}
			}
		}
	})
}
