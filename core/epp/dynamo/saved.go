package dynamo

import (
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/machine"
)

// saved is a Load's JSON form.
type saved struct {
	Booked   Booking                  `json:"booked"`
	Bookings map[Booking]savedBooking `json:"bookings"`
	Sent     []savedSent              `json:"sent"`
}

type savedBooking struct {
	Worker  WorkerID `json:"worker"`
	Prefill int      `json:"prefill"`
	Blocks  []uint64 `json:"blocks"`
	Alone   int      `json:"alone"`
}

type savedSent struct {
	Block  uint64       `json:"block"`
	Worker WorkerID     `json:"worker"`
	Until  machine.Time `json:"until"`
}

// MarshalJSON writes the whole Load.
func (l *Load) MarshalJSON() ([]byte, error) {
	s := saved{l.booked, map[Booking]savedBooking{}, []savedSent{}}
	for n, b := range l.bookings {
		s.Bookings[n] = savedBooking{b.worker, b.prefill, b.blocks, b.alone}
	}
	for _, e := range l.sent.queue[l.sent.first:] {
		if l.sent.until[e.place] == e.at {
			s.Sent = append(s.Sent, savedSent{e.block, e.worker, e.at})
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON restores a Load into an empty one.
func (l *Load) UnmarshalJSON(text []byte) error {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*l = *NewLoad(l.c)
	for n, b := range s.Bookings {
		l.hold(n, &booking{b.Worker, b.Prefill, b.Blocks, b.Alone})
	}
	for _, e := range s.Sent {
		l.sent.until[place{e.Block, e.Worker}] = e.Until
		l.sent.queue = append(l.sent.queue, expiry{place{e.Block, e.Worker}, e.Until})
	}
	l.booked = s.Booked
	return nil
}
