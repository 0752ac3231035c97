package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc, the same on every Linux.
const tick = 10 * time.Millisecond

// CPUOf returns a process's user and system time, in steps of 10 ms, from /proc. It returns 0 where there is no
// /proc.
func CPUOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the program's name, which may contain anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// ResidentBytes returns a process's resident memory, from /proc, or 0 where there is no /proc.
func ResidentBytes(pid int) int64 {
	return status(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:") << 10
}

// Preemptions returns how often the threads of a process were preempted, from /proc, or 0 where there is no /proc.
func Preemptions(pid int) (sum int) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)) // the pattern is valid
	for _, path := range paths {
		sum += int(status(path, "nonvoluntary_ctxt_switches:"))
	}
	return sum
}

// status returns the number after a name in a status file of /proc, or 0 where the process or thread has ended.
func status(path, name string) int64 {
	text, _ := os.ReadFile(path)
	_, after, _ := strings.Cut(string(text), "\n"+name)
	n, _ := strconv.ParseInt(append(strings.Fields(after), "0")[0], 10, 64)
	return n
}
