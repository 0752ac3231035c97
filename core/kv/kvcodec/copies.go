package kvcodec

import "github.com/windtunnel/windtunnel/core/kv"

// Copies turns the events of an engine that reports every copy of a block, as vLLM does, into document 003's events,
// which report whether the block exists. Two requests that compute the same content at once store it twice, and
// removing the first copy does not remove the block. The zero value is ready. It has an entry for each existing block.
type Copies struct{ of map[copyOf]int32 }

type copyOf struct {
	hash   kv.EngineHash
	medium string
}

// Last returns the event without the blocks that still have copies, and whether anything remains to be reported. It
// does not change the event's own list of blocks.
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
