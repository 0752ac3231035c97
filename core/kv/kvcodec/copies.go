package kvcodec

import "github.com/windtunnel/windtunnel/core/kv"

// Copies turns what an engine tells of every copy of a block, as vLLM does, into
// what document 003's events tell: whether the block is there. Two requests that
// compute the same content at once store it twice, and the first copy that goes
// does not take the block away. The zero value is ready; it has an entry for each
// block that is there.
type Copies struct{ of map[copyOf]int32 }

type copyOf struct {
	hash   kv.EngineHash
	medium string
}

// Last returns the event without the blocks of which copies remain, and whether
// anything is left to tell. The event's own list of blocks stays as it is.
func (c *Copies) Last(e kv.Event) (kv.Event, bool) {
	if c.of == nil {
		c.of = map[copyOf]int32{}
	}
	switch e.Kind {
	case kv.Stored:
		for _, h := range e.Hashes {
			c.of[copyOf{h, e.Medium}]++
		}
	case kv.Cleared:
		clear(c.of)
	case kv.Removed:
		var last []kv.EngineHash
		for _, h := range e.Hashes {
			k := copyOf{h, e.Medium}
			if c.of[k] > 1 {
				c.of[k]--
				continue
			}
			delete(c.of, k)
			last = append(last, h)
		}
		e.Hashes = last
		return e, len(last) > 0
	}
	return e, true
}
