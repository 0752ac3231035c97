// Package soak runs whole stacks for a long time under ordinary and under hostile load, and checks what grows: heap,
// goroutines, file descriptors, series of metrics, Envoy's memory. At the end of each of many rounds, the load stops
// until nothing is in flight, so that only leftovers are counted.
//
//	make soak                                  # 10 minutes each
//	make soak-mixed                            # 1 hour of 20 requests a second
//	go test ./bench/soak -v -soak 1m
//
// Without -soak the same takes seconds, and shows that the soak test itself works.
package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
)

var profiles = flag.String("profiles", "",
	"a folder for heap profiles, one after each round: go tool pprof -diff_base shows what grew from one to another")

var soak = flag.Duration("soak", 0,
	"duration of each load (ordinary, hostile, mixed); 0 is a few seconds of each, without a verdict on what grows")

// pace is TestMixed's load in requests per second.
const pace = 20

// The load stops after each round to count leftovers. Growth counts after warm rounds, because caches and pools first
// grow to their size.
const (
	rounds = 20
	warm   = 4
)

// Before the first round, ordinary load runs for at least this time and this number of requests. Bounded stores fill
// up meanwhile, so that this does not count as growth. The slowest is each model server's buffer of 10,000 KV event
// messages for replays.
const (
	filling = 2 * time.Minute
	filled  = 40000
)

// TestOrdinary sends valid requests.
func TestOrdinary(t *testing.T) { run(t, 0, ordinary) }

func ordinary(r *rig, rng *rand.Rand) string {
	text := strings.Repeat("Why is the sky blue? ", 1+rng.IntN(40))
	session := fmt.Sprint("user-", rng.IntN(50))
	return r.ask(fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":%q}]}`, text),
		"x-session-token", session)
}

// TestHostile sends load that no client should send, with one ordinary request in ten. Those must still be answered.
func TestHostile(t *testing.T) {
	run(t, 0, func(r *rig, rng *rand.Rand) string {
		if rng.IntN(10) > 0 {
			r.harm(rng)
			return ""
		}
		return r.ask(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	})
}

// TestMixed sends what a gateway sees in an hour at a fixed rate: mostly streamed and whole answers, and now and then a
// client that gives up, a model that no server has, and something hostile.
func TestMixed(t *testing.T) {
	run(t, pace, func(r *rig, rng *rand.Rand) string {
		switch n := rng.IntN(20); {
		case n == 0:
			r.harm(rng)
		case n == 1:
			sendRaw(r.Gateway.Addr, post(chat(rng)), false, true)
		case n == 2:
			bad := r.ask(`{"model":"other","messages":[{"role":"user","content":"hi"}]}`)
			if !strings.Contains(bad, "NotFoundError") {
				return "a model that no server has: " + bad
			}
		case n < 6:
			return r.ask(`{"model":"m","messages":[{"role":"user","content":"Is the sky blue?"}]}`)
		default:
			return ordinary(r, rng)
		}
		return ""
	})
}

// sample counts the leftovers of a round.
type sample struct {
	Requests   int
	HeapKiB    float64
	Goroutines float64
	Files      float64 // of this process and of Envoy
	EnvoyKiB   float64
	Series     float64
}

var kinds = []struct {
	name string
	of   func(*sample) *float64
	// allowed is the permitted growth of the average from the first to the second half of the rounds: noise plus a
	// fraction of the previous value.
	allowed float64
	share   float64
}{
	{"heap KiB", func(s *sample) *float64 { return &s.HeapKiB }, 4096, 0.15},
	{"goroutines", func(s *sample) *float64 { return &s.Goroutines }, 10, 0},
	{"files", func(s *sample) *float64 { return &s.Files }, 10, 0},
	{"Envoy KiB", func(s *sample) *float64 { return &s.EnvoyKiB }, 16384, 0.25},
	// Rare combinations of names that are bounded each, such as a status of one endpoint, are still new after an hour.
	{"series", func(s *sample) *float64 { return &s.Series }, 20, 0.001},
}

// run plays rounds with calls of once against both stacks, rate a second, or for 0 as many as 16 clients make. With
// -soak, it fills the stores first.
func run(t *testing.T, rate int, once func(*rig, *rand.Rand) string) {
	rigs := make([]*rig, len(scenarios))
	for i, text := range scenarios {
		rigs[i] = start(t, text)
	}
	n, each := rounds, *soak/rounds
	if *soak == 0 {
		n, each = 2, time.Second
	} else {
		fill(t, rigs)
	}
	var samples []sample
	var asked atomic.Int64
	for i := range n {
		load(t, i, each, rate, rigs, func(r *rig, rng *rand.Rand) string {
			asked.Add(1)
			return once(r, rng)
		})
		s := sample{Requests: int(asked.Load())}
		for _, r := range rigs {
			r.client.CloseIdleConnections()
			r.idle(t)
			s.add(t, r)
		}
		s.process()
		profile(t, i)
		samples = append(samples, s)
		t.Logf("round %d: %+v", i, s)
		if t.Failed() {
			break
		}
	}
	t.Log("\n" + table(samples))
	if *soak > 0 && !t.Failed() {
		judge(t, samples[warm:])
	}
}

// fill fills every bounded store: those that ordinary load fills, and the names in metrics' labels, which clients
// choose.
func fill(t *testing.T, rigs []*rig) {
	for _, r := range rigs {
		for i := range 500 {
			if bad := r.ask(fmt.Sprintf(`{"model":"m%d","stream":true,"messages":[{"role":"user","content":"hi"}]}`, i),
				"x-gateway-inference-fairness-id", fmt.Sprint(i)); !strings.Contains(bad, "NotFoundError") {
				t.Fatalf("a model that no server has: %s", bad)
			}
		}
	}
	var asked atomic.Int64
	for i := -1; asked.Load() < filled && !t.Failed(); i-- {
		load(t, i, filling, 0, rigs, func(r *rig, rng *rand.Rand) string {
			asked.Add(1)
			return ordinary(r, rng)
		})
	}
}

// load calls once repeatedly for a time: rate times a second, or for 0 from 16 goroutines, each with one stack. A
// round's load is the same in every run.
func load(t *testing.T, round int, long time.Duration, rate int, rigs []*rig, once func(*rig, *rand.Rand) string) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	wrong := map[string]int{}
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	play := func(k int, rng *rand.Rand) {
		if bad := once(rigs[k%len(rigs)], rng); bad != "" {
			mu.Lock()
			wrong[bad]++
			mu.Unlock()
		}
	}
	for k := 0; rate == 0 && k < 16; k++ {
		rng := rand.New(rand.NewPCG(uint64(round), uint64(k)))
		wg.Go(func() {
			for ctx.Err() == nil {
				play(k, rng)
			}
		})
	}
	if rate > 0 {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for k := 0; ctx.Err() == nil; k++ {
			wg.Go(func() { play(k, rand.New(rand.NewPCG(uint64(round), uint64(k)))) })
			<-tick.C
		}
	}
	wg.Wait()
	for bad, n := range wrong {
		t.Errorf("round %d: %d ordinary requests: %.300s", round, n, bad)
	}
}

// add counts one stack's leftovers: its metrics' series, and its Envoy.
func (s *sample) add(t *testing.T, r *rig) {
	t.Helper()
	for _, l := range r.ports {
		switch l.Part {
		case "epp-metrics", "modelserver", "sidecar", "kv-manager":
			s.Series += float64(series(t, l.Address))
		}
	}
	r.client.CloseIdleConnections()
	s.EnvoyKiB += float64(child.ResidentBytes(r.Gateway.PID()) >> 10)
	s.Files += float64(files(fmt.Sprint(r.Gateway.PID())))
}

// process counts the leftovers of this process, which contains all other parts. It takes the lowest of several
// readings, because closed things disappear with a delay.
func (s *sample) process() {
	s.HeapKiB, s.Goroutines = 1e18, 1e18
	own := 1e18
	for range 5 {
		runtime.GC()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.HeapKiB = min(s.HeapKiB, float64(m.HeapAlloc>>10))
		s.Goroutines = min(s.Goroutines, float64(runtime.NumGoroutine()))
		own = min(own, float64(files("self")))
		time.Sleep(20 * time.Millisecond)
	}
	s.Files += own
}

// profile writes a profile of the heap after a round, if requested.
func profile(t *testing.T, round int) {
	t.Helper()
	if *profiles == "" {
		return
	}
	f, err := os.Create(filepath.Join(*profiles, fmt.Sprintf("%s-%02d.pprof", t.Name(), round)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := pprof.WriteHeapProfile(f); err != nil {
		t.Fatal(err)
	}
}

func files(pid string) int {
	list, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		return 0 // where there is no /proc
	}
	return len(list)
}

// series returns the number of series on a metrics page.
func series(t *testing.T, address string) int {
	t.Helper()
	way := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: way, Timeout: patience}).Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(text.String()) {
		if line[0] != '#' && strings.Contains(line, " ") {
			n++
		}
	}
	return n
}

// table prints the samples, and each figure's slope by least squares over the rounds that count.
func table(samples []sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%10s", "requests")
	for _, k := range kinds {
		fmt.Fprintf(&b, " %11s", k.name)
	}
	for i := range samples {
		fmt.Fprintf(&b, "\n%10d", samples[i].Requests)
		for _, k := range kinds {
			fmt.Fprintf(&b, " %11.0f", *k.of(&samples[i]))
		}
	}
	if len(samples) > warm+1 {
		fmt.Fprintf(&b, "\n%10s", "per 1000")
		for _, k := range kinds {
			fmt.Fprintf(&b, " %11.2f", 1000*slope(samples[warm:], k.of))
		}
	}
	return b.String()
}

// slope returns a figure's growth per request.
func slope(samples []sample, of func(*sample) *float64) float64 {
	var x, y, xx, xy float64
	n := float64(len(samples))
	for i := range samples {
		r, v := float64(samples[i].Requests), *of(&samples[i])
		x, y, xx, xy = x+r, y+v, xx+r*r, xy+r*v
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// judge fails if the second half of the samples has more of something than the first, beyond noise.
func judge(t interface{ Errorf(string, ...any) }, samples []sample) {
	half := len(samples) / 2
	for _, k := range kinds {
		of := func(list []sample) float64 {
			var v []float64
			for i := range list {
				v = append(v, *k.of(&list[i]))
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		was, is := of(samples[:half]), of(samples[half:])
		if is > was+k.allowed+k.share*was {
			t.Errorf("%s grow: %.0f in the middle, %.0f at the end", k.name, was, is)
		}
	}
}

// verdict collects judge's errors.
type verdict struct{ said []string }

func (v *verdict) Errorf(format string, args ...any) {
	v.said = append(v.said, fmt.Sprintf(format, args...))
}

// judge finds a leak of each kind, and ignores noise.
func TestJudge(t *testing.T) {
	t.Parallel()
	if s := slope([]sample{{Requests: 0, Series: 5}, {Requests: 100, Series: 10}, {Requests: 200, Series: 15}},
		kinds[4].of); s != 0.05 {
		t.Errorf("slope %v", s)
	}
	for _, k := range kinds {
		var noise, leak verdict
		for out, step := range map[*verdict]float64{&noise: 0, &leak: 1} {
			samples := make([]sample, rounds-warm)
			for i := range samples {
				*k.of(&samples[i]) = 10000 + float64(i%2) + step*float64(i)*(k.allowed+k.share*10000)
			}
			judge(out, samples)
		}
		if len(noise.said) > 0 || len(leak.said) != 1 || !strings.HasPrefix(leak.said[0], k.name+" grow") {
			t.Errorf("%s: noise %q, a leak %q", k.name, noise.said, leak.said)
		}
	}
}
