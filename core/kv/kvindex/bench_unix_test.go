//go:build unix

package kvindex

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used: on a machine that is shared with
// others it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
