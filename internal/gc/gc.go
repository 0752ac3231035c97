// Package gc sets the garbage collector for windtunnel's serving processes.
//
// Their heaps are small and their garbage is much: bodies, protobuf messages,
// a page of metrics from every model server many times a second. At Go's
// default target of 100 % a quarter of the CPU of such a process goes into
// collecting, in cycles that come often enough to be seen in the 99th
// percentile between two tokens.
package gc

import (
	"os"
	"runtime/debug"
	"sync"
)

// percent trades memory, a few times a small live heap, for CPU and evenness.
const percent = 400

// Serve sets the target for a process that serves, unless the user has set one
// with GOGC, and keeps a small heap from being collected at all.
func Serve() { serve(percent, floorBytes) }

// Pick is Serve for a process that is an endpoint picker alone, which stands beside others and lives long: its
// heap ends at 2 * (live + floor). What it keeps is some 10 MiB, so that cycles are rare all the same.
func Pick() { serve(picking, pickingFloor) }

func serve(percent, floor int) {
	if set(percent) {
		hold(make([]byte, floor))
	}
}

// floor counts as live and is never touched, so that it takes no memory: Serve's
// cycles begin at (live + floor) * 5, some 80 MiB. Without it a picker of a few
// MiB collects several times a second, and every cycle makes some answers a
// millisecond late (make bench PKG=./bench/held).
var (
	mu    sync.Mutex
	floor []byte //nolint:unused // it is there to be counted, and never read
)

// hold takes the lock: tests play several commands at once in one process.
func hold(b []byte) {
	mu.Lock()
	defer mu.Unlock()
	floor = b
}

const (
	floorBytes   = 16 << 20
	picking      = 100
	pickingFloor = 20 << 20
)

// playing trades CPU for memory: in virtual time a single thread makes little
// garbage, nobody waits between two tokens, and the heap grows with the pool.
const playing = 40

// together is for several runs: their garbage comes from all cores, and at 40 % collecting it takes
// a fifth of a sweep.
const together = 100

// Play sets the target for a run in virtual time, unless the user has set one.
func Play() {
	set(playing)
	hold(nil)
}

// PlayMany is Play for several runs, some of them at once.
func PlayMany() {
	set(together)
	hold(nil)
}

func set(percent int) bool {
	if os.Getenv("GOGC") != "" {
		return false
	}
	debug.SetGCPercent(percent)
	return true
}
