// Package freeport is for tests of parts that listen on ports of their own choice, or on the same
// ones again after they were down.
package freeport

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports below those that systems hand out to whoever asks for any port or connects: nobody
// takes one by chance while the part that it is meant for does not listen yet, or is down.
const lowest, number = 10_000, 20_000

var taken atomic.Int32

// Row returns the first of n ports in a row that nobody listens on at 127.0.0.1, and that no
// other call in this process returns.
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
