package kvfeed

import (
	"github.com/windtunnel/windtunnel/core/machine"
)

// feedDriver is a feed with its effects, which a test reads when it likes.
type feedDriver struct {
	*Feed
	fx Effects
}

func newFeed(cfg Config) *feedDriver { return &feedDriver{Feed: New(cfg)} }

func (d *feedDriver) tell(now machine.Time, m Message) { d.Input(now, m, &d.fx) }

func (d *feedDriver) live(now machine.Time, seq uint64, payload []byte) {
	d.tell(now, Message{Kind: Live, Seq: seq, Payload: payload})
}

func (d *feedDriver) replayed(now machine.Time, seq uint64, payload []byte) {
	d.tell(now, Message{Kind: Replayed, Seq: seq, Payload: payload})
}

func (d *feedDriver) replayEnded(now machine.Time, whole bool) {
	d.tell(now, Message{Kind: ReplayEnded, Whole: whole})
}

// advance is everything since the last time.
func (d *feedDriver) advance(now machine.Time) []Effect {
	d.Advance(now, &d.fx)
	list := d.fx.List
	d.fx = Effects{}
	return list
}
