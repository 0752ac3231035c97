package cluster

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/windtunnel/windtunnel/live/serve"
)

// AnyPort is a free port of 127.0.0.1.
const AnyPort = "127.0.0.1:0"

// Addresses gives every pod a loopback address of its own, so that ports mean what they mean in a cluster. Where the
// machine has one loopback address only, or others have taken the ports on all of them, pods share 127.0.0.1 and have
// free ports.
type Addresses struct {
	block *serve.Block // nil where pods share 127.0.0.1

	mu   sync.Mutex
	used map[int]bool
}

// NewAddresses takes a block of addresses, by a port of it that is held until Free. An error says why pods share
// 127.0.0.1; the Addresses can be used all the same.
func NewAddresses(port int) (*Addresses, error) {
	block, err := serve.OwnBlock(port)
	return &Addresses{block: block, used: map[int]bool{}}, err
}

// Own reports whether pods have addresses of their own.
func (a *Addresses) Own() bool { return a.block != nil }

// Take returns the first address that no pod has, and its number for Return.
func (a *Addresses) Take() (number int, ip netip.Addr, err error) {
	if !a.Own() {
		return 0, netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for number = 1; a.used[number]; number++ {
	}
	if number >= serve.MaxBlock {
		return 0, ip, fmt.Errorf("there are more than %d pods", serve.MaxBlock)
	}
	a.used[number] = true
	return number, a.block.Address(number), nil
}

// Return takes an address back from its pod.
func (a *Addresses) Return(number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, number)
}

// On is where a pod with this address listens on a port.
func (a *Addresses) On(ip netip.Addr, port int) string {
	if !a.Own() {
		port = 0
	}
	return netip.AddrPortFrom(ip, uint16(port)).String()
}

// Free gives the block back; nil has none.
func (a *Addresses) Free() {
	if a != nil {
		a.block.Free()
	}
}
