package dynamo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
)

// MaxTokens limits the tokens of a prompt that the router compares.
const MaxTokens = 131072

// Limits of a Router's memory.
const (
	maxWorkers  = 4096
	maxBookings = 1 << 16
	maxID       = 256 // bytes of a request's id
	missed      = 3   // pushes in a row after which a worker has left
)

// Debounce is how long a worker collects changes of its load before it pushes them (Dynamo's 1 ms). In addition it
// pushes periodically, as a sign of life.
const Debounce = machine.Millisecond

// Role is a worker's part in disaggregated serving.
type Role string

// The roles.
const (
	Decode  Role = "decode" // prefill and decode, or decode only
	Prefill Role = "prefill"
)

// Worker is a worker's push about itself: first to register, then when its number of requests changes, and
// periodically.
type Worker struct {
	ID   WorkerID `json:"worker_id"`
	Role Role     `json:"role"`
	// Requests is the number of its waiting and running requests.
	Requests int `json:"active_requests"`
	// Blocks is the number of KV blocks in use.
	Blocks int `json:"kv_used_blocks"`
}

// Check returns an error for an invalid field.
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

// Progress is a picker's report about a request that the Router has routed.
type Progress struct {
	ID string `json:"request_id"`
	// Over states that its answer has ended, for whatever reason; otherwise its first piece has come.
	Over bool `json:"over"`
}

// MaxProgress limits the Progress of one routing call, in entries.
const MaxProgress = 64

// ParseProgress parses the JSON list of a routing call. An empty text is no progress.
func ParseProgress(text string) ([]Progress, error) {
	var list []Progress
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("found %.80q; expected a list such as [{\"request_id\":\"r\",\"over\":true}]: %w", text,
			err)
	}
	if len(list) > MaxProgress {
		return nil, fmt.Errorf("found %d entries; expected %d at most", len(list), MaxProgress)
	}
	return list, nil
}

// Route is a request for a worker.
type Route struct {
	// ID is the request's id. A request that is already booked is routed again.
	ID     string
	Prompt Prompt
}

// Message is a Worker, a Progress or a Route.
type Message interface{ message() }

func (Worker) message()   {}
func (Progress) message() {}
func (Route) message()    {}

// Routed is the answer to a Route.
type Routed struct {
	At machine.Time
	ID string
	// Worker is 0 if no worker is known.
	Worker WorkerID
	Cost   Cost
	// Prefill is the worker that computes the prompt; 0 is Worker itself.
	Prefill WorkerID
}

// Names returns the workers' instance ids as headers have them; "" for none.
func (e Routed) Names() (worker, prefill string) {
	if e.Worker != 0 {
		worker = e.Worker.String()
	}
	if e.Prefill != 0 {
		prefill = e.Prefill.String()
	}
	return worker, prefill
}

// Due returns the time of the decision.
func (e Routed) Due() machine.Time { return e.At }

// Effects are a Router's answers.
type Effects = machine.Effects[Routed]

// Answer is the answer to a routing call: document 001's worker and tokens.
type Answer struct {
	Worker  WorkerID `json:"worker_id"`
	Prefill WorkerID `json:"prefill_worker_id,omitempty"`
	Tokens  []uint32 `json:"token_ids,omitempty"`
}

// Errors of a routing call without a worker, as a picker sees them.
var (
	ErrUnread   = errors.New("status 400") // the frontend cannot read the request
	ErrNoWorker = errors.New("status 503") // no worker has registered
)

// JSON writes the answer.
func (a *Answer) JSON() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // never: the fields are numbers
	}
	return text
}

// PromptOf returns a prompt of token ids, divided into blocks of so many tokens.
func PromptOf(model string, tokens []uint32, blockSize int) Prompt {
	content := parse.TokenPrompt(tokens)
	p := Prompt{Tokens: len(tokens)}
	p.Blocks, p.Alone = content.AppendBlocks(nil, xxhash.Sum64String(model), blockSize, MaxTokens/blockSize)
	return p
}

// Router is Dynamo's router as a process that a picker calls (document 001). Workers register with it and push their
// load. It is a machine.Machine[Message, *Effects].
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
	until machine.Time // the worker has left then, unless it pushes again
}

type routed struct {
	worker WorkerID
	number Booking
	at     machine.Time

	prefill WorkerID // computes the prompt; 0 is worker
	before  Booking  // at prefill
}

// NewRouter returns a router without workers. period is the time between workers' pushes.
func NewRouter(c Config, seed uint64, period machine.Time) *Router {
	return &Router{seed: seed, period: period, load: NewLoad(c), workers: map[WorkerID]*known{},
		booked: map[string]*routed{}}
}

// Workers returns the known workers at their last push, by id.
func (r *Router) Workers() []Worker {
	out := make([]Worker, 0, len(r.workers))
	for _, w := range r.workers {
		out = append(out, w.Worker)
	}
	machine.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Running returns how many requests are booked.
func (r *Router) Running() int { return r.load.Running() }

// Next returns when the first worker counts as gone.
func (r *Router) Next() (machine.Time, bool) {
	at := machine.Never
	for _, w := range r.workers {
		at = min(at, w.until)
	}
	return at, at != machine.Never
}

// Advance removes workers that have not pushed for three periods.
func (r *Router) Advance(now machine.Time, _ *Effects) {
	r.now = max(r.now, now)
	for id, w := range r.workers {
		if w.until <= r.now {
			delete(r.workers, id)
			r.load.Gone(id)
			for request, b := range r.booked {
				switch id {
				case b.worker:
					r.load.Free(b.before)
					delete(r.booked, request)
				case b.prefill:
					b.before = 0
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
		r.push(x)
	case Progress:
		if b := r.booked[x.ID]; b != nil && x.Over {
			r.free(x.ID, b)
		} else if b != nil {
			r.load.Prefilled(b.number)
			r.prefilled(b)
		}
	case Route:
		r.route(&x, fx)
	}
}

// push takes a worker's push. If the worker has no requests, push ends the bookings there that are at least a period
// old: the picker that should have reported their end is gone.
func (r *Router) push(x Worker) {
	if x.Check() != nil || r.workers[x.ID] == nil && len(r.workers) >= maxWorkers {
		return
	}
	r.workers[x.ID] = &known{x, r.now.Add(missed * r.period)}
	if x.Requests > 0 {
		return
	}
	for id, b := range r.booked {
		switch {
		case b.at.Add(r.period) > r.now:
		case b.prefill == x.ID:
			r.prefilled(b)
		case b.worker == x.ID && b.before == 0: // else it waits for the prefill
			r.free(id, b)
		}
	}
}

// prefilled ends the booking at the prefill-only worker, which has computed the prompt.
func (r *Router) prefilled(b *routed) {
	r.load.Free(b.before)
	b.before = 0
}

func (r *Router) free(id string, b *routed) {
	r.load.Free(b.number)
	r.prefilled(b)
	delete(r.booked, id)
}

// choose returns the worker of a role with the lowest cost; 0 if there is none.
func (r *Router) choose(x *Route, role Role, overlap func(int) float64) (WorkerID, Cost) {
	r.ids = r.ids[:0]
	for id, w := range r.workers {
		if w.Role == role {
			r.ids = append(r.ids, id)
		}
	}
	if len(r.ids) == 0 {
		return 0, Cost{}
	}
	slices.Sort(r.ids)
	r.costs = r.load.Costs(r.now, &x.Prompt, r.ids, overlap, r.costs[:0])
	purpose := "route"
	if role == Prefill {
		purpose = "prefill"
	}
	at := r.load.Choose(r.costs, machine.DrawFor(r.seed, "dynamo", purpose, x.ID))
	return r.ids[at], r.costs[at]
}

// route chooses a worker. If there are prefill-only workers, it chooses one of these by cached blocks, and the decoding
// worker, as Dynamo does, by load alone. A decoding worker that has nearly all of the prompt prefills it, too.
func (r *Router) route(x *Route, fx *Effects) {
	e := Routed{At: r.now, ID: x.ID}
	prefill, before := r.choose(x, Prefill, nil)
	if prefill == 0 {
		e.Worker, e.Cost = r.choose(x, Decode, nil)
	} else if e.Worker, e.Cost = r.choose(x, Decode, none); e.Worker != 0 {
		e.Cost.Overlap = float64(r.load.Overlap(r.now, &x.Prompt, e.Worker))
		if x.Prompt.Tokens-int(e.Cost.Overlap)*r.load.c.BlockSize > r.load.c.PrefillThreshold {
			e.Prefill = prefill
		}
	}
	if e.Worker == 0 {
		fx.Add(e)
		return
	}
	if b := r.booked[x.ID]; b != nil {
		r.free(x.ID, b)
	}
	if len(r.booked) < maxBookings && x.ID != "" && len(x.ID) <= maxID {
		b := &routed{worker: e.Worker, at: r.now, prefill: e.Prefill}
		has := e.Cost.Overlap
		if e.Prefill != 0 {
			b.before = r.load.Book(r.now, &x.Prompt, e.Prefill, before.Overlap)
			has = float64(x.Prompt.Tokens/r.load.c.BlockSize + 1) // it computes none of it
		}
		b.number = r.load.Book(r.now, &x.Prompt, e.Worker, has)
		r.booked[x.ID] = b
	}
	fx.Add(e)
}
