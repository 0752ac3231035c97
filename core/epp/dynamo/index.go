package dynamo

import "github.com/windtunnel/windtunnel/core/machine"

// maxSent bounds the remembered blocks; the oldest go first.
const maxSent = 1 << 20

// index records which blocks were sent to which workers, for the time ttl.
type index struct {
	ttl   machine.Time
	until map[place]machine.Time
	queue []expiry // in the order of their times
	first int
}

type place struct {
	Block  uint64   `json:"block"`
	Worker WorkerID `json:"worker"`
}

type expiry struct {
	place
	At machine.Time `json:"until"`
}

func newIndex(ttl machine.Time) index { return index{ttl: ttl, until: map[place]machine.Time{}} }

// leading returns how many of a prompt's first blocks a worker has cached.
func (x *index) leading(now machine.Time, blocks []uint64, id WorkerID) int {
	for n, b := range blocks {
		if x.until[place{b, id}] <= now {
			return n
		}
	}
	return len(blocks)
}

// add records blocks as cached from now on, and removes expired ones.
func (x *index) add(now machine.Time, blocks []uint64, id WorkerID) {
	at := now.Add(x.ttl)
	for _, b := range blocks {
		p := place{b, id}
		x.until[p] = at
		x.queue = append(x.queue, expiry{p, at})
	}
	for x.first < len(x.queue) && (x.queue[x.first].At <= now || len(x.queue)-x.first > maxSent) {
		if e := x.queue[x.first]; x.until[e.place] == e.At { // else it was sent again
			delete(x.until, e.place)
		}
		x.first++
	}
	if x.first > len(x.queue)/2 {
		x.queue = x.queue[:copy(x.queue, x.queue[x.first:])]
		x.first = 0
	}
}

func (x *index) gone(id WorkerID) {
	for p := range x.until {
		if p.Worker == id {
			delete(x.until, p)
		}
	}
}
