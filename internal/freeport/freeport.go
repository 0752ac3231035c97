// Package freeport chooses ports for tests of parts that need known ports, or the same ones again after a restart.
package freeport

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// The ports are below those that systems assign on demand, and below those that parts of windtunnel choose, so no other
// process takes one by chance while its part does not listen.
const lowest, number = 10_000, 9_900

var taken atomic.Int32

// Row returns the first of n consecutive ports on which nothing listens at 127.0.0.1, and which no other call in this
// process returns.
func Row(t testing.TB, n int) int {
	t.Helper()
	for range 100 {
		first := lowest + (os.Getpid()*101+int(taken.Add(int32(n)))-n)%number
		free := 0
		for free < n {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+free)))
			if err != nil {
				break
			}
			_ = l.Close()
			free++
		}
		if free == n {
			return first
		}
	}
	t.Fatalf("no %d free ports in a row", n)
	return 0
}
