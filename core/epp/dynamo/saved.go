package dynamo

import "encoding/json"

// saved is a Load's JSON form.
type saved struct {
	Booked   Booking              `json:"booked"`
	Bookings map[Booking]*booking `json:"bookings"`
	Sent     []expiry             `json:"sent"`
}

// MarshalJSON writes the whole Load.
func (l *Load) MarshalJSON() ([]byte, error) {
	s := saved{l.booked, l.bookings, []expiry{}}
	for _, e := range l.sent.queue[l.sent.first:] {
		if l.sent.until[e.place] == e.At {
			s.Sent = append(s.Sent, e)
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
		if b != nil { // a null
			l.hold(n, b)
		}
	}
	for _, e := range s.Sent {
		l.sent.until[e.place] = e.At
	}
	l.sent.queue, l.booked = s.Sent, s.Booked
	return nil
}
