package dynamo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// MaxTokens is how much of a prompt the router compares.
const MaxTokens = 131072

// Limits of what a Router remembers for others.
const (
	maxWorkers  = 4096
	maxBookings = 1 << 16
	maxID       = 256 // bytes of a request's id
	missed      = 3   // pushes in a row after which a worker has left
)

// Role is what a worker does.
type Role string

// The roles.
const (
	Decode  Role = "decode" // prefill and decode, or decode only
	Prefill Role = "prefill"
)

// Worker is what a worker pushes of itself: first to announce itself, then again by
// the clock.
type Worker struct {
	ID   WorkerID `json:"worker_id"`
	Role Role     `json:"role"`
	// Requests are those that it has in hand, waiting or running.
	Requests int `json:"active_requests"`
	// Blocks are the KV blocks in use there.
	Blocks int `json:"kv_used_blocks"`
}

// Check says what is wrong with it.
func (w *Worker) Check() error {
	switch {
	case w.ID == 0:
		return errors.New("worker_id is missing or 0; expected a worker's instance id")
	case w.Role != Decode && w.Role != Prefill:
		return fmt.Errorf("found role %.40q; expected decode or prefill", w.Role)
	case w.Requests < 0 || w.Blocks < 0:
		return errors.New("active_requests or kv_used_blocks is below 0; expected counts")
	}
	return nil
}

// Progress is what a picker tells of a request that the Router has routed.
type Progress struct {
	ID string `json:"request_id"`
	// Over says that its answer has ended, whatever way; else its first piece is there.
	Over bool `json:"over"`
}

// Route asks for a worker.
type Route struct {
	// ID is the request's. One that is booked already is routed anew.
	ID     string
	Prompt Prompt
}

// Message is a Worker, a Progress or a Route.
type Message interface{ message() }

func (Worker) message()   {}
func (Progress) message() {}
func (Route) message()    {}

// Routed answers a Route.
type Routed struct {
	At machine.Time
	ID string
	// Worker is 0 where no worker is known.
	Worker WorkerID
	Cost   Cost
}

// Due is when it happened.
func (e Routed) Due() machine.Time { return e.At }

// Effects are a Router's answers.
type Effects = machine.Effects[Routed]

// Answer is what a routing call is answered: document 001's worker and tokens.
type Answer struct {
	Worker WorkerID `json:"worker_id"`
	Tokens []uint32 `json:"token_ids,omitempty"`
}

// What a routing call comes to that names no worker, as a picker sees it.
var (
	ErrUnread   = errors.New("status 400") // the frontend cannot read the request
	ErrNoWorker = errors.New("status 503") // no worker has announced itself
)

// JSON writes the answer.
func (a *Answer) JSON() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // numbers can be written
	}
	return text
}

// PromptOf is a prompt of token ids as a router that splits it into blocks of so many tokens
// compares it.
func PromptOf(model string, tokens []uint32, blockSize int) Prompt {
	content := parse.TokenPrompt(tokens)
	p := Prompt{Tokens: len(tokens)}
	p.Blocks, p.Alone = content.AppendBlocks(nil, xxhash.Sum64String(model), blockSize, MaxTokens/blockSize)
	return p
}

// Router is Dynamo's router as a part of its own, which a picker asks (document 001):
// workers announce themselves to it and push what they have in hand. It is a
// machine.Machine[Message, *Effects].
type Router struct {
	seed    uint64
	period  machine.Time
	now     machine.Time
	load    *Load
	workers map[WorkerID]*known
	booked  map[string]*routed
	ids     []WorkerID
	costs   []Cost
}

type known struct {
	Worker
	until machine.Time // it has left then, unless it says something
}

type routed struct {
	worker WorkerID
	number Booking
	at     machine.Time
}

// NewRouter knows no worker. period is how often workers push.
func NewRouter(c Config, seed uint64, period machine.Time) *Router {
	return &Router{seed: seed, period: period, load: NewLoad(c), workers: map[WorkerID]*known{}, booked: map[string]*routed{}}
}

// Workers are those that are known, by their ids, as they were at their last push.
func (r *Router) Workers() []Worker {
	out := make([]Worker, 0, len(r.workers))
	for _, w := range r.workers {
		out = append(out, w.Worker)
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Running is how many requests are booked.
func (r *Router) Running() int { return r.load.Running() }

// Next is when the first worker counts as gone.
func (r *Router) Next() (machine.Time, bool) {
	at := machine.Never
	for _, w := range r.workers {
		at = min(at, w.until)
	}
	return at, at != machine.Never
}

// Advance forgets workers that have said nothing for three periods.
func (r *Router) Advance(now machine.Time, _ *Effects) {
	r.now = max(r.now, now)
	for id, w := range r.workers {
		if w.until <= r.now {
			delete(r.workers, id)
			r.load.Gone(id)
			for request, b := range r.booked {
				if b.worker == id {
					delete(r.booked, request)
				}
			}
		}
	}
}

// Input takes a message.
func (r *Router) Input(now machine.Time, m Message, fx *Effects) {
	r.Advance(now, fx)
	switch x := m.(type) {
	case Worker:
		r.hear(x)
	case Progress:
		if b := r.booked[x.ID]; b != nil && x.Over {
			r.free(x.ID, b)
		} else if b != nil {
			r.load.Prefilled(b.number)
		}
	case Route:
		r.route(&x, fx)
	}
}

// hear notes a push. One of a worker that has nothing in hand ends what was booked there
// a period ago or before: whoever should have told that it is over is gone.
func (r *Router) hear(x Worker) {
	if x.Check() != nil || r.workers[x.ID] == nil && len(r.workers) >= maxWorkers {
		return
	}
	r.workers[x.ID] = &known{x, r.now.Add(missed * r.period)}
	if x.Requests > 0 {
		return
	}
	for id, b := range r.booked {
		if b.worker == x.ID && b.at.Add(r.period) <= r.now {
			r.free(id, b)
		}
	}
}

func (r *Router) free(id string, b *routed) {
	r.load.Free(b.number)
	delete(r.booked, id)
}

func (r *Router) route(x *Route, fx *Effects) {
	r.ids = r.ids[:0]
	for id, w := range r.workers {
		if w.Role == Decode {
			r.ids = append(r.ids, id)
		}
	}
	slices.Sort(r.ids)
	if len(r.ids) == 0 {
		fx.Add(Routed{At: r.now, ID: x.ID})
		return
	}
	r.costs = r.load.Costs(r.now, &x.Prompt, r.ids, nil, r.costs[:0])
	at := r.load.Choose(r.costs, machine.DrawFor(r.seed, "dynamo", "route", x.ID))
	e := Routed{At: r.now, ID: x.ID, Worker: r.ids[at], Cost: r.costs[at]}
	if b := r.booked[x.ID]; b != nil {
		r.free(x.ID, b)
	}
	if len(r.booked) < maxBookings && x.ID != "" && len(x.ID) <= maxID {
		r.booked[x.ID] = &routed{e.Worker, r.load.Book(r.now, &x.Prompt, e.Worker, e.Cost.Overlap), r.now}
	}
	fx.Add(e)
}
