package held

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// compared is one of several endpoint pickers that are measured in turn, each behind its own Envoy, with the same
// model servers. The others are paused.
type compared struct {
	*child.Process
	role                 string
	gateway              *envoy.Process
	took                 times
	epp, proxy, upstream time.Duration // CPU time
	cpu                  []float64     // µs of epp per request, by turn
	loaded               time.Duration
	waits, requests      int
	written              int64 // bytes, if the role writes a file
}

// takeTurns sends requests, 64 at once, through every picker in turn, several times, and prints the results.
func takeTurns(b *testing.B, wait string, roles ...string) map[string]*compared {
	b.Helper()
	at, n, turns := 64, 1000, 15
	if testing.Short() {
		n, turns = 200, 1
	}
	servers := child.Start(b, "canned", wait)
	var sides []*compared
	for _, role := range roles {
		p := child.Start(b, role, strings.Join(servers.Addresses, " "))
		s := &compared{Process: p, role: role, gateway: startEnvoy(b, p.Addresses[0], false), took: times{}}
		sides = append(sides, s)
		lines := dial(b, s.gateway.Addr, at)
		lines.load(b, 500)
		lines.close()
		p.Pause(b)
	}
	for b.Loop() {
		for range turns {
			for _, s := range sides {
				s.Resume(b)
				s.round(b, servers, n, at)
				s.Pause(b)
			}
		}
	}
	out := map[string]*compared{}
	var table strings.Builder
	fmt.Fprintf(&table, "model servers that take %s; the EPP's own time, and CPU per request\n%-14s %8s %8s %8s %8s "+
		"%8s %8s %10s %8s %8s %8s %8s\n", wait,
		"", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "≤0.5ms %", "≤1ms %", "preempted", "EPP µs", "Envoy µs",
		"servers", "req/s")
	for _, s := range sides {
		out[s.role] = s
		us := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(s.requests) }
		q := func(v float64) float64 { return 1e6 * s.took.quantile(v) }
		fmt.Fprintf(&table, "%-14s %8.0f %8.0f %8.0f %8.0f %8.2f %8.2f %10.3f %8.0f %8.0f %8.0f %8.0f\n", s.role, q(.5),
			q(.9), q(.99), q(.999), s.took.within(.0005), s.took.within(.001),
			float64(s.waits)/float64(s.requests), us(s.epp), us(s.proxy), us(s.upstream),
			float64(s.requests)/s.loaded.Seconds())
	}
	b.Log(table.String())
	return out
}

// round is one turn of a picker. The first moments after a pause do not count.
func (s *compared) round(b *testing.B, servers *child.Process, n, at int) {
	b.Helper()
	lines := dial(b, s.gateway.Addr, at)
	defer lines.close()
	lines.load(b, 200)
	size := s.size(b)
	was, epp, proxy, upstream, waits := processing(b, s.Addresses[1]), s.CPU(b), child.CPUOf(s.gateway.PID()),
		servers.CPU(b), child.Preemptions(s.PID())
	s.loaded += lines.load(b, n)
	s.waits += child.Preemptions(s.PID()) - waits
	epp = s.CPU(b) - epp
	s.epp += epp
	s.cpu = append(s.cpu, float64(epp.Microseconds())/float64(n))
	s.proxy += child.CPUOf(s.gateway.PID()) - proxy
	s.upstream += servers.CPU(b) - upstream
	s.took.add(processing(b, s.Addresses[1]).less(was))
	s.requests += n
	s.written += s.size(b) - size
}

// over returns how much more CPU a request costs at this picker than at another. It is the median over the turns, since
// both pickers have the same noise within a turn.
func (s *compared) over(other *compared) float64 { return median(ratios(s.cpu, other.cpu)) }

// size returns the size of the picker's file, if it has one.
func (s *compared) size(b *testing.B) int64 {
	b.Helper()
	if len(s.Addresses) < 3 || s.Addresses[2] == "-" {
		return 0
	}
	b.Cleanup(func() { os.RemoveAll(filepath.Dir(s.Addresses[2])) })
	info, err := os.Stat(s.Addresses[2])
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// lines are a client's connections, one per request in flight. The client should cost as little as on another
// machine, so it does not use net/http.
type lines []net.Conn

func dial(b *testing.B, target string, n int) lines {
	b.Helper()
	out := make(lines, n)
	for i := range out {
		var err error
		if out[i], err = net.Dial("tcp", target); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

func (l lines) close() {
	for _, c := range l {
		_ = c.Close()
	}
}

// load sends n requests, one at a time on every connection, and returns the time that they took.
func (l lines) load(b *testing.B, n int) time.Duration {
	b.Helper()
	request := fmt.Appendf(nil,
		"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: "+
			"%d\r\n\r\n%s", len(body), body)
	var turn atomic.Int64
	return rounds(b, n, len(l), func() func() error {
		c := l[turn.Add(1)-1]
		in := bufio.NewReader(c)
		text := new(bytes.Buffer)
		return func() error {
			if _, err := c.Write(request); err != nil {
				return err
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			text.Reset()
			if _, err := text.ReadFrom(resp.Body); err != nil {
				return err
			}
			return whole(resp, text.Bytes(), `"content":`)
		}
	})
}

// BenchmarkPickerThroughEnvoy measures the real EPP's default scorers with 64 model servers scraped every 50 ms and
// 64 requests at once: with model servers that take 20 ms, and with ones that answer at once, so that the machine is
// the limit. It is compared with the same EPP without scrapes, and with a picker that answers at once, whose late
// answers are due to the machine.
//
// The EPP's times are from a request's last bytes at its socket to the answer's first bytes there. The gate is for
// model servers that take 20 ms: the 99th percentile is at most three times that of the picker that answers at once.
// An absolute gate has no meaning here: on two busy cores, shared with Envoy, client and model servers, even that
// picker has 1.1 to 3.4 ms.
func BenchmarkPickerThroughEnvoy(b *testing.B) {
	for _, wait := range []string{"20ms", "0s"} {
		b.Run(wait, func(b *testing.B) {
			sides := takeTurns(b, wait, "at-once", "epp-unscraped", "epp")
			epp, none := sides["epp"], sides["at-once"]
			b.ReportMetric(1e6*epp.took.quantile(.5), "p50-µs")
			limit := 3.
			if wait == "0s" {
				limit = math.Inf(1)
			}
			gate.AtMost(b, epp.took.quantile(.99)/none.took.quantile(.99), "p99-ratio", limit)
			b.ReportMetric(1e6*epp.took.quantile(.99), "p99-µs")
			b.ReportMetric(1e6*none.took.quantile(.99), "at-once-p99-µs")
			b.ReportMetric(epp.took.within(.001), "epp-within-1ms-%")
			b.ReportMetric(float64(epp.epp.Microseconds())/float64(epp.requests), "epp-cpu-µs/req")
			b.ReportMetric(float64(epp.requests)/epp.loaded.Seconds(), "req/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRecordingThroughEnvoy measures the cost of keeping every decision with its whole explanation
// (/debug/decisions, windtunnel explain), and of document 003's log lines.
func BenchmarkRecordingThroughEnvoy(b *testing.B) {
	sides := takeTurns(b, "20ms", "epp", "epp-recording", "epp-logging")
	gate.AtMost(b, sides["epp-recording"].over(sides["epp"]), "recording-ratio", 1.25)
	b.ReportMetric(sides["epp-logging"].over(sides["epp"]), "logging-ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkInputsThroughEnvoy measures the cost of writing all of the endpoint picker's inputs and effects to a file
// (windtunnel epp --record).
//
// Gate: it adds at most 5 % of CPU (inputs-ratio).
func BenchmarkInputsThroughEnvoy(b *testing.B) {
	sides := takeTurns(b, "20ms", "epp", "epp-inputs")
	gate.AtMost(b, sides["epp-inputs"].over(sides["epp"]), "inputs-ratio", 1.05)
	b.ReportMetric(float64(sides["epp-inputs"].written)/float64(sides["epp-inputs"].requests), "written-B/req")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPickerResident: the memory of an endpoint picker that stands alone, over 16 and 64 model servers that it
// scrapes every 50 ms, after 20,000 requests and after 100,000 of the same prompt: what it keeps of prompts does not
// grow then.
//
// Gates: 101 and 109 MiB for the command, whose binary has 13 MiB more in memory than this one, and no growth between
// the two; the collector's cycles alone may make 5 %.
func BenchmarkPickerResident(b *testing.B) {
	for n, limit := range map[int]float64{16: 101 - 13, 64: 109 - 13} {
		b.Run(fmt.Sprintf("%d-servers", n), func(b *testing.B) {
			first, then := 20000, 100000
			if testing.Short() {
				first, then = 500, 1000
			}
			servers := child.Start(b, "canned", "0s")
			epp := child.Start(b, "epp-alone", strings.Join(servers.Addresses[:n], " "))
			lines := dial(b, startEnvoy(b, epp.Addresses[0], false).Addr, 64)
			defer lines.close()
			after := func(requests int) float64 {
				lines.load(b, requests)
				return float64(child.ResidentBytes(epp.PID())) / (1 << 20)
			}
			for b.Loop() {
				early, late := after(first), after(then-first)
				gate.AtMost(b, max(early, late), "MiB", limit)
				gate.AtMost(b, late/early, "growth", 1.05)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
