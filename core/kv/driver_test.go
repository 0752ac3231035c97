package kv

import "github.com/windtunnel/windtunnel/core/machine"

// give has an index take one event, and returns what it did because of the
// time.
func give(ix *Index, now machine.Time, from Topic, e *Event) []Effect {
	return tell(ix, now, &Events{From: from, List: []Event{*e}})
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

// feedDriver is a feed with its effects, which a test reads when it likes.
type feedDriver struct {
	*Feed
	fx FeedEffects
}

func newFeed(cfg FeedConfig) *feedDriver { return &feedDriver{Feed: NewFeed(cfg)} }

func (d *feedDriver) tell(now machine.Time, m FeedMessage) { d.Input(now, m, &d.fx) }

func (d *feedDriver) live(now machine.Time, seq uint64, payload []byte) {
	d.tell(now, FeedMessage{Kind: Live, Seq: seq, Payload: payload})
}

func (d *feedDriver) replayed(now machine.Time, seq uint64, payload []byte) {
	d.tell(now, FeedMessage{Kind: Replayed, Seq: seq, Payload: payload})
}

func (d *feedDriver) replayEnded(now machine.Time, whole bool) {
	d.tell(now, FeedMessage{Kind: ReplayEnded, Whole: whole})
}

// advance is everything since the last time.
func (d *feedDriver) advance(now machine.Time) []FeedEffect {
	d.Advance(now, &d.fx)
	list := d.fx.List
	d.fx = FeedEffects{}
	return list
}
