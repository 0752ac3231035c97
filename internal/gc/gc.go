// Package gc configures the garbage collector for windtunnel's serving processes.
//
// These processes have small heaps and much garbage: bodies, protobuf messages, and the metrics pages of all model
// servers many times a second. At Go's default target of 100 %, such a process spends a quarter of its CPU time on
// collection, in cycles so frequent that they show in the 99th percentile of the time between two tokens.
package gc

import (
	"os"
	"runtime/debug"
	"sync"
)

// percent trades memory, a few times a small live heap, for CPU time and fewer pauses.
const percent = 400

// Serve sets the target of a serving process, unless the user has set one with GOGC, and prevents collections while
// the heap is small.
func Serve() { serve(percent, floorBytes) }

// Pick is Serve for a process that is only an endpoint picker, which runs beside others for a long time. Its heap
// ends at 2 * (live + floor). Its live data is some 10 MiB, so cycles are still rare.
func Pick() { serve(picking, pickingFloor) }

func serve(percent, floor int) {
	if set(percent) {
		hold(make([]byte, floor))
	}
}

// floor counts as live and is never touched, so it needs no memory. With it, Serve's cycles begin at (live + floor) *
// 5, some 80 MiB. Without it, a picker with a few MiB of live data collects several times a second, and every cycle
// delays some answers by a millisecond (make bench PKG=./bench/held).
var (
	mu    sync.Mutex
	floor []byte //nolint:unused // counts as live and is never read
)

// hold replaces the floor under a lock, because tests run several commands in one process.
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

// playing trades CPU time for memory. In virtual time, a single thread makes little garbage, no client waits between
// two tokens, and the heap grows with the pool.
const playing = 40

// together is for several runs at once. All cores make garbage then, and at 40 % collecting it takes a fifth of a
// sweep's time.
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
