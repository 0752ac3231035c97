package dataproducer

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
)

const typePredicted = "predicted-latency-producer"

// Predicted is predicted-latency-producer. It asks the latency predictor how long a request would take at each
// endpoint, and sends it the measured times. Without a predictor or an answer, its consumers fall back.
type Predicted struct {
	named
	SamplingMean     float64 `json:"samplingMean"`                       // without effect, as in the real one
	MaxDecodeSamples int     `json:"maxDecodeTokenSamplesForPrediction"` // likewise
	BufferFactor     float64 `json:"sloBufferFactor" above:"0"`          // of the objective per output token
	ContextTTL       int     `json:"contextTTL"`                         // nanoseconds
	Streaming        bool    `json:"streamingMode"`
	RoleLabel        string  `json:"endpointRoleLabel"`
	InProduce        bool    `json:"predictInProduce"`
	Prefix           string  `json:"prefixMatchInfoProducerName"`
	InFlight         string  `json:"inFlightLoadProducerName"`
	UseEncoderCache  bool    `json:"useEncoderCacheFeatures"`
	EncoderCache     string  `json:"encoderCacheMatchInfoProducerName"`

	source  PrefixSource
	load    *Inflight
	service *picker.PredictorService

	running  []runningQueue // by slot
	contexts map[*picker.Decision]*flight
	oldest   []*flight // in the order in which they began; some are over
	first    int       // of them, that is not known to be over
	samples  []predictor.Sample
	flushAt  machine.Time // 0: no samples wait
	pollAt   machine.Time
}

const (
	defaultContextTTL = 300 * machine.Second
	// predictTimeout is the real director's limit on producers.
	predictTimeout = 400 * machine.Millisecond
	// flushInterval is the time between two messages of samples, flushTimeout their time limit, and maxSamples the
	// largest number in one: the defaults of the real client and its chart.
	flushInterval = machine.Second
	flushTimeout  = 10 * machine.Second
	maxSamples    = 10_000
)

// Prediction is the prediction for one request at one endpoint. Headroom is the objective minus the prediction, in
// milliseconds.
type Prediction struct {
	TTFTMs, TPOTMs             float64
	TTFTHeadroom, TPOTHeadroom float64
	Valid                      bool // it meets the objectives
	Dispatched                 int64
}

// Negative reports whether an objective would be missed.
func (p *Prediction) Negative() bool { return p.TTFTHeadroom < 0 || p.TPOTHeadroom < 0 }

// predictions holds the predictions for one decision.
type predictions struct {
	list []Prediction // by view index
	ok   []bool
	rows []predictor.Features // by view index
	took machine.Time
}

// Spare implements picker.Spare.
func (*predictions) Reusable() {}

// flight is a request that was sent somewhere, until it is over.
type flight struct {
	flightState
	d        *picker.Decision
	endpoint int32   // of the decision's view
	tpot     float64 // measured, in milliseconds; 0 is not yet
}

// flightState is the saved part of a flight.
type flightState struct {
	Slot      int                `json:"slot"`
	Queued    bool               `json:"queued,omitempty"` // in the running queue
	At        machine.Time       `json:"at"`
	SLO       float64            `json:"slo,omitempty"`  // per output token, in milliseconds; 0 is none
	Row       predictor.Features `json:"row"`            // of the endpoint that computes the prompt
	Decode    predictor.Features `json:"decode"`         // of the one that answers
	Answered  bool               `json:"told,omitempty"` // there was a prediction
	Predicted [2]float64         `json:"foretold"`       // to the first token and per further one, in milliseconds
	TTFT      float64            `json:"ttft,omitempty"` // measured, in milliseconds; 0 is not yet
}

// runningQueue holds the objectives of the requests that run at one endpoint.
type runningQueue struct{ slos []float64 }

func (q *runningQueue) add(slo float64) { q.slos = append(q.slos, slo) }

func (q *runningQueue) remove(slo float64) {
	for i, x := range q.slos {
		if x == slo {
			q.slos[i] = q.slos[len(q.slos)-1]
			q.slos = q.slos[:len(q.slos)-1]
			return
		}
	}
}

// least returns the tightest objective; 0 where one has none.
func (q *runningQueue) least() float64 {
	least := math.Inf(1)
	for _, x := range q.slos {
		least = math.Min(least, x)
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// NewPredicted makes predicted-latency-producer.
var NewPredicted = picker.Of(Predicted{SamplingMean: 1000, BufferFactor: 1, InProduce: true,
	ContextTTL: int(defaultContextTTL)})

// Complete implements picker.Completer.
func (s *Predicted) Complete(b *picker.Builder, name string) {
	s.service, s.contexts = b.Options().Predictor, map[*picker.Decision]*flight{}
	FindPrefix(b, s.Prefix, name, &s.source)
	if s.InFlight != "" || s.service != nil {
		FindInflight(b, s.InFlight, name, &s.load)
	}
}

// FindPredicted links a plug-in to the producer of predictions once all are declared, and makes one if there is none.
func FindPredicted(b *picker.Builder, producer, consumer string, to **Predicted) {
	picker.Link(b, to, cmp.Or(producer, typePredicted), typePredicted, "LatencyPredictionInfoDataKey", consumer,
		typePredicted)
}

// features describe the request at an endpoint.
func (s *Predicted) features(c *picker.Cycle, m *PrefixMatch, st *picker.State) predictor.Features {
	f := predictor.Features{KV: share(st.KVUsage), InputTokens: int64(c.Request.Tokens), Waiting: max(0, st.Waiting),
		Running:   max(0, st.Running),
		Generated: 1, Prefix: share(m.Ratio(st)), PodType: s.podType(st.Endpoint)}
	if s.load != nil {
		f.Running, f.PrefillTokens = s.load.Load(st.Slot())
		f.Running, f.PrefillTokens = max(0, f.Running), max(0, f.PrefillTokens)
	}
	return f
}

// share returns a number from 0 to 1, whatever an endpoint says.
func share(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}

func (s *Predicted) podType(e *picker.Endpoint) string {
	if s.RoleLabel == "" {
		return ""
	}
	return e.Labels[s.RoleLabel]
}

// KeyPredict is the key of the producer's question, KeySamples the key of the samples that it sends to the predictor,
// and KeyPoll the key of its requests for the predictor's state.
const (
	KeyPredict = "predict"
	KeySamples = "samples"
	KeyPoll    = "poll"
)

// Consult asks how long the request would take at each endpoint: picker.Consulter.
func (s *Predicted) Consult(c *picker.Cycle) []picker.Need {
	if s.service == nil || !s.InProduce {
		return nil
	}
	m := s.source.Match(c)
	rows := make([]predictor.Features, 0, len(c.Candidates))
	ids := make([]string, 0, len(c.Candidates))
	for _, i := range c.Candidates {
		rows = append(rows, s.features(c, m, c.State(i)))
		ids = append(ids, c.State(i).ID())
	}
	url := s.service.Prediction[0]
	if n := len(s.service.Prediction); n > 1 {
		d := c.Draw("prediction server")
		url = s.service.Prediction[d.Intn(n)]
	}
	return []picker.Need{{Plugin: s.Name(), Key: KeyPredict, Method: "POST", URL: url + predictor.PathPredict,
		Timeout: cmp.Or(s.service.Timeout, predictTimeout), Endpoints: ids, Subject: rows, Together: s.service.Together,
		Body: func() ([]byte, error) { return json.Marshal(predictor.Bulk{Requests: rows}) }}}
}

// ReadLatencies reads the predictor's answer: picker.LatencyReader.
func (s *Predicted) ReadLatencies(a *picker.Answer) {
	list, err := predictor.ReadPredictions(a.Value, len(a.Endpoints))
	if err != nil {
		a.Err = err
		return
	}
	for _, p := range list {
		a.Latencies = append(a.Latencies, picker.Latency(p))
	}
}

// Produce takes what was predicted for the candidates.
func (s *Predicted) Produce(c *picker.Cycle) {
	if s.service == nil {
		return
	}
	p, _ := picker.Data[predictions](c.Decision, s)
	n := len(c.View.States)
	p.list = append(p.list[:0], make([]Prediction, n)...)
	p.ok = append(p.ok[:0], make([]bool, n)...)
	p.rows = append(p.rows[:0], make([]predictor.Features, n)...)
	m := s.source.Match(c)
	for _, i := range c.Candidates {
		p.rows[i] = s.features(c, m, c.State(i))
	}
	a := c.Answer(s, KeyPredict)
	if p.took = 0; a != nil {
		p.took = a.Took
	}
	if a == nil || a.Err != nil || len(a.Latencies) != len(a.Endpoints) {
		return
	}
	// The candidates are mostly those of the question, in its order.
	next := 0
	for _, i := range c.Candidates {
		at, id := -1, c.State(i).ID()
		for k := range a.Endpoints {
			if j := (next + k) % len(a.Endpoints); a.Endpoints[j] == id {
				at, next = j, j+1
				break
			}
		}
		if at < 0 || predictor.Prediction(a.Latencies[at]).Check() != nil {
			continue
		}
		p.list[i], p.ok[i] = s.judge(c.Request, c.State(i), a.Latencies[at]), true
	}
}

// judge holds a prediction against the request's objectives.
func (s *Predicted) judge(r *picker.Request, st *picker.State, l picker.Latency) Prediction {
	q := Prediction{TTFTMs: l.TTFTMs, TPOTMs: l.TPOTMs, TTFTHeadroom: r.TTFTMs - l.TTFTMs}
	q.Valid = l.TTFTMs < r.TTFTMs
	limit := r.TPOTMs * s.BufferFactor
	if slot := st.Slot(); slot < len(s.running) {
		q.Dispatched = int64(len(s.running[slot].slos))
		if least := s.running[slot].least() * s.BufferFactor; least > 0 {
			limit = math.Min(limit, least)
		}
	}
	if s.Streaming && s.podType(st.Endpoint) != PrefillProfile {
		q.TPOTHeadroom = limit - l.TPOTMs
		q.Valid = q.Valid && l.TPOTMs < limit
	}
	return q
}

// Of returns the prediction for an endpoint, nil when there is none.
func (s *Predicted) Of(c *picker.Cycle, i int32) *Prediction { return s.about(c.Decision, i) }

func (s *Predicted) about(d *picker.Decision, i int32) *Prediction {
	p := picker.Peek[predictions](d, s)
	if p == nil || int(i) >= len(p.list) || !p.ok[i] {
		return nil
	}
	return &p.list[i]
}

// Commit follows the request where it was sent.
func (s *Predicted) Commit(now machine.Time, d *picker.Decision) {
	r := d.PrimaryProfile()
	if s.service == nil || !r.Ok() {
		return
	}
	s.expire(now)
	i := r.Picked[0]
	f := &flight{d: d, endpoint: i,
		flightState: flightState{Slot: d.View.States[i].Slot(), At: now, SLO: d.Request.TPOTMs}}
	if running := picker.AtSlot(&s.running, f.Slot); f.SLO >= 0 {
		running.add(f.SLO)
		f.Queued = true
	}
	if p := picker.Peek[predictions](d, s); p != nil {
		prompt := i
		if x := d.Profile(PrefillProfile); x.Ok() && x != r {
			prompt = x.Picked[0]
		}
		f.Row, f.Decode = p.rows[prompt], p.rows[i]
		if a, b := s.about(d, prompt), s.about(d, i); a != nil && b != nil {
			f.Predicted, f.Answered = [2]float64{a.TTFTMs, b.TPOTMs}, true
		}
	}
	s.contexts[d] = f
	s.oldest = append(s.oldest, f)
}

// expire forgets requests that take longer than contextTTL.
func (s *Predicted) expire(now machine.Time) {
	for s.first < len(s.oldest) &&
		(s.oldest[s.first].d == nil || now-s.oldest[s.first].At > machine.Time(s.ContextTTL)) {
		s.leave(s.oldest[s.first])
		s.first++
	}
	if len(s.oldest) > 2*len(s.contexts)+64 {
		s.oldest, s.first = slices.DeleteFunc(s.oldest, func(f *flight) bool { return f.d == nil }), 0
	}
}

// leave ends a flight.
func (s *Predicted) leave(f *flight) {
	if f.d == nil {
		return
	}
	if f.Queued && f.Slot < len(s.running) {
		s.running[f.Slot].remove(f.SLO)
	}
	delete(s.contexts, f.d)
	f.d = nil
}

// Release forgets the request.
func (s *Predicted) Release(_ machine.Time, d *picker.Decision) {
	if f := s.contexts[d]; f != nil {
		s.leave(f)
	}
}

// ReadsProgress implements picker.ProgressReader.
func (*Predicted) ReadsProgress() bool { return true }

// ResponseBody takes the times of a response: of a stream, the time of its first chunk and, at its end, the time per
// further token; of any other response, the time of its end.
func (s *Predicted) ResponseBody(now machine.Time, r *picker.Response) {
	f := s.contexts[r.Decision]
	if f == nil || r.Failed() {
		return
	}
	ms := float64(now-f.At) / float64(machine.Millisecond)
	switch {
	case s.Streaming && r.Streaming && f.TTFT == 0 && !r.End:
		f.TTFT = ms
	case !s.Streaming && r.End && r.Chunks > 0:
		f.TTFT = ms
	case r.End && f.TTFT > 0:
		if n := outputTokens(r); n > 1 && ms > f.TTFT {
			f.tpot = (ms - f.TTFT) / float64(n-1)
			row := f.Decode
			st := &r.Decision.View.States[f.endpoint]
			row.KV, row.Waiting = share(st.KVUsage), max(0, st.Waiting)
			row.Prefix, row.EncoderMatched, row.EncoderInput, row.Generated = 0, 0, 0, int64(n)
			s.addSample(now, predictor.Sample{Features: row, TPOTMs: f.tpot})
		}
		return
	default:
		return
	}
	row := f.Row
	row.Generated = 0
	s.addSample(now, predictor.Sample{Features: row, TTFTMs: f.TTFT})
}

// outputTokens returns how many tokens a stream had: as it says itself, else as many as
// it had events.
func outputTokens(r *picker.Response) int {
	if r.HasUsage && r.Usage.CompletionTokens > 0 {
		return r.Usage.CompletionTokens
	}
	return r.Events
}

// addSample keeps a sample until it is sent. Of more than are sent at once, the oldest go.
func (s *Predicted) addSample(now machine.Time, x predictor.Sample) {
	if s.service.Training == "" || x.Check() != nil {
		return
	}
	if len(s.samples) >= maxSamples {
		s.samples = append(s.samples[:0], s.samples[1+maxSamples/10:]...)
	}
	s.samples = append(s.samples, x)
	s.flushAt = cmp.Or(s.flushAt, (now/flushInterval+1)*flushInterval)
}

// SendAt returns when samples, or requests for the servers' state, are due: picker.Sender.
func (s *Predicted) SendAt() (machine.Time, bool) {
	switch polls := s.service != nil && s.service.Poll > 0; {
	case polls && s.flushAt > 0:
		return min(s.flushAt, s.pollAt), true
	case polls:
		return s.pollAt, true
	}
	return s.flushAt, s.flushAt > 0
}

// Send does what is due.
func (s *Predicted) Send(now machine.Time) (out []picker.Need) {
	if s.service.Poll > 0 && s.pollAt <= now {
		out = s.poll(s.pollAt > 0)
		s.pollAt = now + s.service.Poll
	}
	if s.flushAt == 0 || s.flushAt > now {
		return out
	}
	list := s.samples
	s.samples, s.flushAt = nil, 0
	return append(out, picker.Need{Plugin: s.Name(), Key: KeySamples, Method: "POST",
		URL: s.service.Training + predictor.PathSamples, Timeout: flushTimeout, Subject: list,
		Body: func() ([]byte, error) { return json.Marshal(predictor.Entries{Entries: list}) }})
}

// poll asks what the real client asks when it starts, and with the trees each time
// after that.
func (s *Predicted) poll(trees bool) (out []picker.Need) {
	get := func(url string) {
		out = append(out, picker.Need{Plugin: s.Name(), Key: KeyPoll, Method: "GET", URL: url, Timeout: flushTimeout})
	}
	get(s.service.Prediction[0] + predictor.PathStatus)
	if s.service.Training == "" {
		return out
	}
	get(s.service.Training + predictor.PathInfo)
	if trees {
		get(s.service.Training + predictor.PathTrees(predictor.TTFT))
		get(s.service.Training + predictor.PathTrees(predictor.TPOT))
	}
	return out
}

// EndpointGone forgets what runs there.
func (s *Predicted) EndpointGone(slot int, _ bool) {
	if slot < len(s.running) {
		s.running[slot].slos = nil
	}
	for _, f := range s.contexts {
		if f.Slot == slot {
			f.Queued = false
		}
	}
}

// Predicting returns how long the predictor took to answer; 0 is unknown.
func (s *Predicted) Predicting(d *picker.Decision) machine.Time {
	if p := picker.Peek[predictions](d, s); p != nil {
		return p.took
	}
	return 0
}

// PredictionOutcome returns the predicted and the measured times: picker.LatencyPredictor.
func (s *Predicted) PredictionOutcome(d *picker.Decision) (picker.PredictionOutcome, bool) {
	f := s.contexts[d]
	if f == nil || f.TTFT == 0 && f.tpot == 0 {
		return picker.PredictionOutcome{}, false
	}
	return picker.PredictionOutcome{Predicted: f.Answered,
		Prediction: picker.Latency{TTFTMs: f.Predicted[0], TPOTMs: f.Predicted[1]},
		Observed:   picker.Latency{TTFTMs: f.TTFT, TPOTMs: f.tpot}}, true
}

// Forecast returns the prediction for an endpoint: picker.LatencyPredictor.
func (s *Predicted) Forecast(d *picker.Decision, endpoint int32) *picker.Forecast {
	p := s.about(d, endpoint)
	if p == nil {
		return nil
	}
	out := &picker.Forecast{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}
	if d.Request.TTFTMs > 0 {
		out.TTFTHeadroomMs = &p.TTFTHeadroom
	}
	if d.Request.TPOTMs > 0 && s.Streaming {
		out.TPOTHeadroomMs = &p.TPOTHeadroom
	}
	return out
}
