package modelserver

import (
	"container/list"
	"context"
	"net"
	"strconv"
	"sync"
	"time"
)

// external is the cache beside a fleet's servers, of the connectors that travel
// by one (shared storage, LMCache): blocks by their content. A prompt's blocks
// are in it when it is computed; the time that writing them takes is charged to
// whoever reads them first.
type external struct {
	mu     sync.Mutex
	blocks map[uint64]*list.Element
	order  list.List // of *stockpiled, least recently used first
}

type stockpiled struct {
	hash   uint64
	writer int // its node, -1 once somebody has read the block
}

// maxExternal bounds the blocks of the external cache.
const maxExternal = 1 << 20

// put stores a prompt's blocks.
func (x *external) put(hashes []uint64, writer int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.blocks == nil {
		x.blocks = map[uint64]*list.Element{}
		x.order.Init()
	}
	for _, h := range hashes {
		if e := x.blocks[h]; e != nil {
			x.order.MoveToBack(e)
			continue
		}
		x.blocks[h] = x.order.PushBack(&stockpiled{h, writer})
		if len(x.blocks) > maxExternal {
			oldest := x.order.Front()
			delete(x.blocks, x.order.Remove(oldest).(*stockpiled).hash)
		}
	}
}

// find is how many of a prompt's first blocks are there, and the node from
// which they are still to be written, or -1.
func (x *external) find(hashes []uint64, reader int) (n, writer int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	writer = -1
	for _, h := range hashes {
		e := x.blocks[h]
		if e == nil {
			break
		}
		n++
		x.order.MoveToBack(e)
		b := e.Value.(*stockpiled)
		if b.writer >= 0 && b.writer != reader {
			writer, b.writer = b.writer, -1
		}
	}
	return n, writer
}

// ask asks another server how much of a prompt it has; one that does not answer
// has nothing.
func (s *Server) ask(ctx context.Context, at *remoteKV, hashes []uint64) sideAnswer {
	limit := min(s.sideTimeout(), time.Second)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(at.host, strconv.Itoa(at.port)))
	if err != nil {
		s.log.Warn("a source of cached blocks does not answer", "server", s.name, "error", err)
		return sideAnswer{}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	a, err := exchange(conn, sideRequest{Op: "find", Hashes: hashes})
	if err != nil || !a.OK {
		s.log.Warn("a source of cached blocks does not answer", "server", s.name, "error", err)
		return sideAnswer{}
	}
	return a
}
