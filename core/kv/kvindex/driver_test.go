package kvindex

import (
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// give has an index take one event, and returns what it did because of the
// time.
func give(ix *Index, now machine.Time, from kv.Topic, e *kv.Event) []Effect {
	return tell(ix, now, &Events{From: from, List: []kv.Event{*e}})
}

func tell(ix *Index, now machine.Time, m Message) []Effect {
	var fx Effects
	ix.Input(now, m, &fx)
	return fx.List
}

func advance(ix *Index, now machine.Time) []Effect {
	var fx Effects
	ix.Advance(now, &fx)
	return fx.List
}
