package parity

import (
	"fmt"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// Flow control behind a door is the server's own, on the player's clock. The
// player moves the clock by steps and waits after each until everything that
// became possible has happened: until the requests without an answer are as
// many as the server says that it holds.

// patience is how long a server may take over what is due.
const patience = 10 * time.Second

// ask sends a request that flow control may hold.
func (pl *player) ask(x *exchange, rq *Request) {
	if id := rq.Headers[picker.HeaderRequestID]; id != "" {
		pl.known.Store(id, x)
	}
	x.asked = rq
	pl.asked = append(pl.asked, x)
	x.opened = pl.door.ask(pl.now, rq)
	pl.settle()
	pl.advance(2 * machine.Millisecond)
}

// pass lets time go by up to the next scrape. As long as answers come it goes
// by the dispatch interval, so that their order is seen.
func (pl *player) pass(until machine.Time) {
	scrape := min(until, pl.now+50*machine.Millisecond)
	for quiet := 0; pl.now < scrape && (quiet < 3 || pl.fine); {
		pl.now = min(scrape, pl.now+machine.Millisecond)
		pl.alone(func() {})
		if quiet++; pl.settle() > 0 {
			quiet = 0
		}
	}
	pl.now = scrape
	pl.scrape()
	pl.settle()
}

// settle waits for everything that is due and returns how many answers came.
func (pl *player) settle() (answers int) {
	end := time.Now().Add(patience)
	for n := 1; ; n++ {
		answers += pl.listen()
		queued, evicted, left := pl.door.flow()
		if len(pl.asked) == queued && pl.evictions == evicted && left {
			return answers
		}
		if pl.stuck {
			return answers
		}
		if !left && n%16 == 0 { // flow control forgets who left in its next round
			pl.now += machine.Millisecond
			pl.alone(func() {})
		}
		time.Sleep(20 * time.Microsecond)
		if pl.stuck = time.Now().After(end); pl.stuck {
			pl.fault("flow control", "held", fmt.Sprint(len(pl.asked), " requests without an answer, ", pl.evictions, " evictions"), fmt.Sprint(queued, ", ", evicted))
			return answers
		}
	}
}

// listen takes what came on the streams.
func (pl *player) listen() (answers int) {
	for _, x := range slices.Clone(pl.asked) {
		got, over := pl.door.heard(x.opened)
		x.later = append(x.later, got...)
		n := answered(x.later, x.asked)
		if n < 0 && !over {
			continue
		}
		if n < 0 {
			n = len(x.later)
		}
		x.got, x.later = x.later[:n], x.later[n:]
		pl.asked = slices.DeleteFunc(pl.asked, func(a *exchange) bool { return a == x })
		x.done, x.answered = true, pl.now
		pl.order = append(pl.order, x.id)
		pl.compareMessages(x, x.asked)
		answers++
	}
	for _, id := range sortedKeys(pl.open) {
		x := pl.open[id]
		if !x.done || x.closed || x.evicted != nil || refused(x.got) {
			continue
		}
		got, _ := pl.door.heard(x.opened)
		for _, m := range append(x.later, got...) {
			if m.Type == "immediate_response" {
				x.evicted = &apierror.Error{Status: m.Status, Message: *m.Body, Reason: m.header(apierror.DroppedReasonHeader), Bare: true}
				pl.evictions++
				pl.release(x)
				break
			}
		}
		x.later = nil
	}
	return answers
}

// answered is how many messages a request's answer is, -1 when it is not
// complete: its eviction may have come behind it.
func answered(got []Message, rq *Request) int {
	i := slices.IndexFunc(got, func(m Message) bool {
		return m.Type == "immediate_response" || m.Type == "request_headers" && rq.Body == nil || m.Type == "request_body" && m.EOS
	})
	if i < 0 {
		return -1
	}
	return i + 1
}
