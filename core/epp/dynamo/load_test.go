package dynamo

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

func seeded(n uint64) machine.Draw { return machine.NewDraw(7, "dynamo", "test", n) }

// TestCost works the documented formulas out by hand: worker a has two of four blocks
// and runs one request of 64 tokens, b is idle.
func TestCost(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Config)
		a, b   float64
	}{
		{"defaults", func(*Config) {}, (4 + 4 - 2) + (4 + 4), 4 + 4},
		{"credit off", func(c *Config) { c.OverlapScoreCredit = 0 }, 8 + 8, 8},
		{"decay", func(c *Config) { c.CreditDecay = 1 }, (8 - 2/(1+4.0/4)) + 8, 8},
		{"scale", func(c *Config) { c.PrefillLoadScale = 2 }, 2*6 + 8, 2*4 + 4},
		{"requests", func(c *Config) { c.ActiveRequestWeight = 3 }, 6 + 8 + 3, 8},
		{"lmetric", func(c *Config) { c.Policy = LMetric }, 6 * 9, 4 * 5},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := DefaultConfig()
			x.change(&c)
			l := NewLoad(c)
			l.Book(0, &Prompt{Tokens: 64, Blocks: []uint64{11, 12, 13, 14}}, 1, 0)
			costs := l.Costs(1, &Prompt{Tokens: 64, Blocks: []uint64{1, 2, 3, 4}}, []WorkerID{1, 2},
				func(i int) float64 { return float64(2 - 2*i) }, nil)
			if costs[0].Total != x.a || costs[1].Total != x.b {
				t.Errorf("costs %v and %v, want %v and %v", costs[0].Total, costs[1].Total, x.a, x.b)
			}
		})
	}
}

// TestBlocksInUseCountOnce: two requests with one beginning hold it once.
func TestBlocksInUseCountOnce(t *testing.T) {
	l := NewLoad(DefaultConfig())
	p := &Prompt{Tokens: 64, Blocks: []uint64{1, 2, 3, 4}}
	n := l.Book(0, p, 1, 0)
	l.Prefilled(n)
	if x := l.Costs(1, p, []WorkerID{1}, nil, nil)[0]; x.Decode != 4 || x.Overlap != 4 || x.Total != 4 {
		t.Errorf("%+v: want 4 blocks in use, 4 of them there, and nothing to prefill", x)
	}
	l.Free(n)
	if x := l.Costs(DefaultConfig().TTL, p, []WorkerID{1}, nil, nil)[0]; x.Overlap != 0 || x.Total != 8 {
		t.Errorf("%+v: after its time nothing is taken for cached", x)
	}
}

// TestChoose: without a temperature the least cost is chosen and ties are shared; with
// one the cheaper are chosen more often.
func TestChoose(t *testing.T) {
	costs := []Cost{{Total: 5}, {Total: 1}, {Total: 3}, {Total: 1}}
	count := func(temperature float64) (n [4]int) {
		c := Config{Temperature: temperature}
		for i := range uint64(4000) {
			n[c.Choose(costs, seeded(i))]++
		}
		return n
	}
	if n := count(0); n[0]+n[2] > 0 || n[1] < 1800 || n[3] < 1800 {
		t.Errorf("without temperature %v", n)
	}
	if n := count(1); n[0] == 0 || n[0] >= n[2] || n[2] >= n[1] {
		t.Errorf("with temperature 1 %v", n)
	}
	if c := (Config{}); c.Choose(nil, seeded(0)) != -1 {
		t.Error("of none one was chosen")
	}
}

// TestLoadReturns: whatever happens in whatever order, what is over leaves nothing.
func TestLoadReturns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := NewLoad(DefaultConfig()), machine.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := Booking(rapid.Uint64Range(0, 20).Draw(t, "booking"))
			now = now.Add(rapid.SampledFrom([]machine.Time{0, machine.Second, 100 * machine.Second}).Draw(t, "span"))
			id := WorkerID(rapid.IntRange(1, 3).Draw(t, "worker"))
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				blocks := rapid.SliceOfN(rapid.Uint64Range(1, 9), 0, 6).Draw(t, "blocks")
				l.Book(now, &Prompt{Tokens: 16 * len(blocks), Blocks: blocks, Alone: 1}, id,
					float64(rapid.IntRange(0, 6).Draw(t, "overlap")))
			case 2:
				l.Prefilled(n)
			case 3, 4:
				l.Free(n)
			case 5:
				l.Gone(id)
			}
		}
		for n := range l.booked + 1 {
			l.Free(n)
		}
		if l.Running() > 0 || len(l.workers) > 0 {
			t.Fatalf("%d bookings and %d workers with load are left", l.Running(), len(l.workers))
		}
	})
}
