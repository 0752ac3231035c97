//go:build unix

package envoy

import (
	"sync"
	"syscall"
)

// raiseDescriptorLimit raises the soft limit on open files to the hard one. The Go runtime does so for itself, but
// passes the old limit to child processes unless the program has set one. A held HTTP/1.1 request takes two descriptors
// in Envoy.
var raiseDescriptorLimit = sync.OnceFunc(func() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
})

// DescriptorLimit returns how many files one process may have open, after raising the limit as far as possible.
func DescriptorLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Max)
}
