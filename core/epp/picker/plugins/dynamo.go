package plugins

import (
	"encoding/json"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
	"github.com/windtunnel/windtunnel/core/machine"
)

// The headers by which Dynamo's EPP names the worker to a frontend.
const (
	headerDynamoWorker = "x-dynamo-worker-instance-id"
	headerDynamoRank   = "x-dynamo-dp-rank"
	headerDynamoMode   = "x-dynamo-routing-mode"

	headerDynamoPrefill     = "x-dynamo-prefill-instance-id"
	headerDynamoPrefillRank = "x-dynamo-prefill-dp-rank"
)

// dynamoTokens limits the tokens of a prompt that the router compares.
const dynamoTokens = 131072

// dynamoRouter is dynamo-router: Dynamo's KV router in the endpoint picker itself
// (document 001's plug-in). The worker that it chooses scores 1, all others 0. It
// books a request at the decision, its prefill until the first piece of the answer.
//
// Where there are endpoints that only prefill (by their label), a profile of these has one of them chosen by what it
// has of the prompt, and the one that decodes is chosen by its load alone, as Dynamo does.
type dynamoRouter struct {
	named
	BlockSize   int             `json:"blockSize" min:"1" max:"4096"`
	Credit      float64         `json:"overlapScoreCredit" min:"0" max:"16"`
	Decay       float64         `json:"overlapScoreCreditDecay" min:"0" max:"1000"`
	Scale       float64         `json:"prefillLoadScale" min:"0" max:"1000"`
	Weight      float64         `json:"decodeActiveRequestWeight" min:"0" max:"1000"`
	Temperature float64         `json:"routerTemperature" min:"0" max:"1000"`
	Policy      dynamo.Policy   `json:"selectionPolicy"`
	TTL         config.Duration `json:"routerTTL" above:"0s"`
	Prefix      string          `json:"prefixMatchInfoProducerName"`

	load   *dynamo.Load
	source dataproducer.PrefixSource // nil: what it sent itself
	ids    []dynamo.WorkerID
	costs  []dynamo.Cost
	seen   []dynamo.WorkerID // by slot
}

// dynamoBooking is the router's data about a decision.
type dynamoBooking struct {
	prompt dynamo.Prompt
	buf    []uint64
	// Where it decodes, and where its prompt is computed if that is elsewhere.
	decode, prefill dynamoPlace
}

type dynamoPlace struct {
	worker  dynamo.WorkerID // chosen
	overlap float64
	number  dynamo.Booking // 0: none
}

// prefills reports whether an endpoint does nothing else.
func prefills(s *picker.State) bool { return s.Labels[picker.LabelRole] == "prefill" }

func newDynamoRouter(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	c := dynamo.DefaultConfig()
	s := &dynamoRouter{BlockSize: c.BlockSize, Credit: c.OverlapScoreCredit, Scale: c.PrefillLoadScale,
		Policy: c.Policy, TTL: config.Duration(c.TTL)}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if !slices.Contains(s.Policy.Values(), string(s.Policy)) {
		return nil, p.At("selectionPolicy").Expected("kv or lmetric")
	}
	s.load = dynamo.NewLoad(
		dynamo.Config{BlockSize: s.BlockSize, OverlapScoreCredit: s.Credit, CreditDecay: s.Decay,
			PrefillLoadScale: s.Scale, ActiveRequestWeight: s.Weight,
			Temperature: s.Temperature, Policy: s.Policy, TTL: s.TTL.Time()})
	dataproducer.EnsureTokens(b, name)
	if s.Prefix != "" {
		dataproducer.FindPrefix(b, s.Prefix, name, &s.source)
	}
	return s, nil
}

// PrefixBlocks returns those that it names.
func (s *dynamoRouter) PrefixBlocks() (tokens, limit int) { return s.BlockSize, dynamoTokens }

// dynamoPrompt names a request's blocks.
func dynamoPrompt(r *picker.Request, size int, buf []uint64) dynamo.Prompt {
	out := dynamo.Prompt{Tokens: r.Tokens, Blocks: buf[:0]}
	seed := xxhash.Sum64String(r.TargetModel)
	if salt := r.Body.CacheSalt; salt != "" {
		seed = parse.Mix(seed, xxhash.Sum64String(salt))
	}
	prompts := r.Prompts()
	for i := range prompts {
		var alone int
		out.Blocks, alone = prompts[i].AppendBlocks(out.Blocks, seed, size, dynamoTokens/size)
		out.Alone += alone
	}
	return out
}

// Score gives the worker that the router chooses 1.
func (s *dynamoRouter) Score(c *picker.Cycle, in []int32, scores []float64) {
	if c.Request.Body == nil {
		return
	}
	b, _ := picker.Data[dynamoBooking](c.Decision, s)
	b.prompt = dynamoPrompt(c.Request, s.BlockSize, b.buf)
	b.buf = b.prompt.Blocks
	place := &b.decode
	if prefills(c.State(in[0])) {
		place = &b.prefill
	}
	s.ids = s.ids[:0]
	for _, i := range in {
		s.ids = append(s.ids, dynamo.IDOf(c.State(i).Name))
	}
	var overlap func(int) float64
	if s.source != nil {
		m := s.source.Match(c)
		overlap = func(i int) float64 {
			return float64(int(m.Of(c.State(in[i]))) * m.BlockTokens / s.BlockSize)
		}
	}
	states, byLoad := c.Decision.View.States, false
	for i := 0; i < len(states) && place == &b.decode && !byLoad; i++ {
		byLoad = prefills(&states[i])
	}
	if byLoad {
		overlap = func(int) float64 { return 0 }
	}
	s.costs = s.load.Costs(c.Now, &b.prompt, s.ids, overlap, s.costs[:0])
	purpose := "dynamo"
	if place == &b.prefill {
		purpose = "dynamo-prefill"
	}
	at := s.load.Choose(s.costs, c.Draw(purpose))
	scores[at], *place = 1, dynamoPlace{worker: s.ids[at], overlap: s.costs[at].Overlap}
	if byLoad {
		place.overlap = float64(s.load.Overlap(c.Now, &b.prompt, place.worker))
	}
}

// PreRequest names the worker in the headers that Dynamo's frontends read. If a tokenizer returned the prompt's tokens,
// it adds them to the body, so that the engine need not compute them again.
func (s *dynamoRouter) PreRequest(c *picker.Cycle) {
	r := c.Decision.PrimaryProfile()
	if picker.Peek[dynamoBooking](c.Decision, s) == nil || !r.Ok() {
		return
	}
	c.Decision.SetHeader(headerDynamoWorker, dynamo.IDOf(c.State(r.Picked[0]).Name).String())
	c.Decision.SetHeader(headerDynamoRank, "0")
	if p := c.Decision.Prefiller(); p != nil {
		c.Decision.SetHeader(headerDynamoPrefill, dynamo.IDOf(p.Name).String())
		c.Decision.SetHeader(headerDynamoPrefillRank, "0")
		c.Decision.SetHeader(headerDynamoMode, "disaggregated")
	} else {
		c.Decision.SetHeader(headerDynamoMode, "aggregated")
	}
	if x := c.Request.Rendered; len(x) == 1 && x[0].IsTokens() {
		carryTokens(c.Request, &x[0], "nvext", "token_data")
	}
}

// carryTokens adds a prompt's tokens to the body.
func carryTokens(r *picker.Request, p *parse.Prompt, path ...string) {
	r.Members = append(r.Members,
		picker.Member{Path: path, Value: func() ([]byte, error) { return json.Marshal(p.IDs()) }})
}

// Commit books the request where profiles with this scorer sent it, which other
// scorers may have had a say in. What is prefilled elsewhere is no prefill where it decodes.
func (s *dynamoRouter) Commit(now machine.Time, d *picker.Decision) {
	b := picker.Peek[dynamoBooking](d, s)
	if b == nil {
		return
	}
	for i := range d.Profiles {
		r := &d.Profiles[i]
		if !r.Ok() || !slices.ContainsFunc(r.Scorers,
			func(w picker.WeightedScorer) bool { return w.Scorer == picker.Scorer(s) }) {
			continue
		}
		at := &d.View.States[r.Picked[0]]
		id, place := dynamo.IDOf(at.Name), &b.decode
		if prefills(at) {
			place = &b.prefill
		}
		switch {
		case place == &b.decode && d.Prefiller() != nil:
			place.overlap = float64(b.prompt.Tokens/s.BlockSize + 1)
		case id != place.worker:
			place.overlap = float64(s.load.Overlap(now, &b.prompt, id))
		}
		*picker.AtSlot(&s.seen, at.Slot()) = id
		place.number = s.load.Book(now, &b.prompt, id, place.overlap)
	}
}

// ReadsProgress implements picker.ProgressReader.
func (*dynamoRouter) ReadsProgress() bool { return true }

// ResponseBody ends the prefill at the first piece of the answer.
func (s *dynamoRouter) ResponseBody(_ machine.Time, r *picker.Response) {
	if b := picker.Peek[dynamoBooking](r.Decision, s); b != nil && r.First {
		s.load.Prefilled(b.decode.number)
		s.load.Free(b.prefill.number)
	}
}

// Release frees the booking.
func (s *dynamoRouter) Release(_ machine.Time, d *picker.Decision) {
	if b := picker.Peek[dynamoBooking](d, s); b != nil {
		s.load.Free(b.decode.number)
		s.load.Free(b.prefill.number)
	}
}

// EndpointGone forgets the worker.
func (s *dynamoRouter) EndpointGone(slot int, _ bool) {
	if slot < len(s.seen) {
		s.load.Gone(s.seen[slot])
	}
}

// SaveState copies what the router remembers.
func (s *dynamoRouter) SaveState() any {
	text, err := s.load.MarshalJSON()
	if err != nil {
		panic(err) // plain numbers can be written
	}
	return json.RawMessage(text)
}

// LoadState implements picker.StateKeeper.
func (s *dynamoRouter) LoadState(text []byte) error { return s.load.UnmarshalJSON(text) }

// SaveDecision keeps a request's bookings.
func (s *dynamoRouter) SaveDecision(d *picker.Decision) any {
	if b := picker.Peek[dynamoBooking](d, s); b != nil {
		return [2]dynamo.Booking{b.decode.number, b.prefill.number}
	}
	return nil
}

// LoadDecision implements picker.DecisionKeeper.
func (s *dynamoRouter) LoadDecision(d *picker.Decision, text []byte) error {
	b, _ := picker.Data[dynamoBooking](d, s)
	var numbers [2]dynamo.Booking
	err := json.Unmarshal(text, &numbers)
	b.decode.number, b.prefill.number = numbers[0], numbers[1]
	return err
}
