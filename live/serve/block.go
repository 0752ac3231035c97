package serve

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// Block is a network of loopback addresses (127.A.0.0/16) that one run has to
// itself, so that ports mean what they mean in a cluster.
type Block struct {
	number byte
	lock   net.Listener
}

// Blocks of loopback addresses. A run holds a port of a block's address 0 for as
// long as it uses the block, so that two runs at once do not meet.
const (
	firstBlock = 16
	lastBlock  = 250
)

// OwnBlock takes a block that nobody has. A machine with one loopback address only
// has none; that is the error.
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
			break // there is one loopback address only
		}
	}
	return nil, fmt.Errorf("no network of loopback addresses is free: %w", taken)
}

// MaxBlock is how many addresses a block has.
const MaxBlock = 250 * 250

// Address is the block's address of a number, below MaxBlock.
func (b *Block) Address(k int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, b.number, byte(k / 250), byte(k%250 + 1)})
}

// Free gives the block back; nil has none.
func (b *Block) Free() {
	if b != nil {
		_ = b.lock.Close() // nobody ever connects to it
	}
}
