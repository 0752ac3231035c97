package proxy

import (
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
)

// A bucket lets as many pass at once as its limit says, and then one for each part of the unit.
func TestBucket(t *testing.T) {
	t.Parallel()
	const second = machine.Second
	for _, c := range []struct {
		limit gateway.RateLimit
		at    []machine.Time
		want  string
	}{
		{gateway.RateLimit{Requests: 2, Unit: "Second"},
			[]machine.Time{0, 0, 0, second/2 - 1, second / 2, second / 2, 9 * second, 9 * second, 9 * second},
			"110010110"},
		{gateway.RateLimit{Requests: 1, Unit: "Day"}, []machine.Time{0, 86399 * second, 86400 * second, 5}, "1010"},
		{gateway.RateLimit{Requests: math.MaxUint32, Unit: "Minute"}, []machine.Time{0, 1 << 62, 1 << 62}, "111"},
	} {
		b, got := Bucket{Limit: c.limit}, ""
		for _, at := range c.at {
			got += map[bool]string{true: "1", false: "0"}[b.Take(at)]
		}
		if got != c.want {
			t.Errorf("%+v at %v: %s, expected %s", c.limit, c.at, got, c.want)
		}
	}
}
