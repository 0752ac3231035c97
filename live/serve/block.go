package serve

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// Block is a network of loopback addresses (127.A.0.0/16) that belongs to one run, so that every pod can use its
// usual ports.
type Block struct {
	number byte
	lock   net.Listener
}

// The blocks of loopback addresses. As a lock, a run listens on a port of the block's address 0 while it uses the
// block.
const (
	firstBlock = 16
	lastBlock  = 250
)

// OwnBlock returns a block that no other run uses. The error says why there is none, as on a machine with only one
// loopback address.
func OwnBlock(port int) (*Block, error) {
	var taken error
	for i := range lastBlock - firstBlock {
		b := &Block{number: byte(firstBlock + (os.Getpid()*7+i)%(lastBlock-firstBlock))}
		lock, err := net.Listen("tcp", netip.AddrPortFrom(b.Address(0), uint16(port)).String())
		if err == nil {
			b.lock = lock
			return b, nil
		}
		if taken = err; strings.Contains(err.Error(), "assign requested address") {
			break // the machine has only one loopback address
		}
	}
	return nil, fmt.Errorf("no network of loopback addresses is free: %w", taken)
}

// MaxBlock is the number of addresses in a block.
const MaxBlock = 250 * 250

// Address returns the block's address with number k, from 0 to MaxBlock-1.
func (b *Block) Address(k int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, b.number, byte(k / 250), byte(k%250 + 1)})
}

// Free returns the block. A nil Block has nothing to return.
func (b *Block) Free() {
	if b != nil {
		_ = b.lock.Close() // no client ever connects to it
	}
}
