package plugins

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// dynamoFrontend is dynamo-frontend-scorer: it sends the original body to a Dynamo frontend
// that stands beside the picker or elsewhere, with x-routing-request: true, and gives the
// worker that the answer names 1 (document 001). Without an answer in time all
// endpoints score 0.
type dynamoFrontend struct {
	named
	URL     string          `json:"url"`
	Timeout config.Duration `json:"timeout" above:"0s"`
	// ForwardTokens puts the answer's tokens into the body, for a frontend beside the
	// model server.
	ForwardTokens bool `json:"forwardTokens"`

	progress []dynamo.Progress
	sendAt   machine.Time // 0: nothing to send
}

// dynamoAsked holds the frontend's answer for a decision.
type dynamoAsked struct {
	Worker  dynamo.WorkerID
	prefill dynamo.WorkerID // 0: the worker itself
	tokens  []uint32
}

// The questions of a dynamo-frontend-scorer, and where it puts them.
const (
	KeyRoute    = "route"
	KeyProgress = "progress"
	// PathProgress takes a list of dynamo.Progress.
	PathProgress = "/v1/router/progress"
	// HeaderRoutingRequest asks the frontend for a worker instead of an answer.
	HeaderRoutingRequest = "x-routing-request"

	// HeaderProgress carries the progress of earlier requests, so that the answer takes it into account.
	HeaderProgress = "x-routing-progress"

	headerGatewayWorker = "x-gateway-worker-id"
)

// sendAfter is how long progress is collected before it is sent, and maxProgress bounds the collection.
const (
	sendAfter   = 5 * machine.Millisecond
	maxProgress = 4096
)

var newDynamoFrontend = picker.Of(dynamoFrontend{URL: "http://dynamo-frontend:8000",
	Timeout: config.Duration(100 * machine.Millisecond)})

// Configure implements picker.Configurer.
func (s *dynamoFrontend) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	return checkURL(&s.URL, p.At("url"), "the frontend's URL, such as http://dynamo-frontend:8000")
}

// Needs asks the frontend and adds the progress that is pending.
func (s *dynamoFrontend) Needs(_ machine.Time, r *picker.Request, _ *picker.View) []picker.Need {
	if r.Body == nil {
		return nil
	}
	path, _, _ := strings.Cut(r.Headers.Get(":path"), "?")
	head := header.List{{Name: HeaderRoutingRequest, Value: "true"}, {Name: picker.HeaderRequestID, Value: r.ID}}
	if n := min(len(s.progress), dynamo.MaxProgress); n > 0 {
		text, err := json.Marshal(s.progress[:n])
		if err != nil {
			panic(err) // texts and truths can be written
		}
		head = append(head, header.Header{Name: HeaderProgress, Value: string(text)})
		if s.progress = s.progress[n:]; len(s.progress) == 0 {
			s.progress, s.sendAt = nil, 0
		}
	}
	return []picker.Need{{Plugin: s.Name(), Key: KeyRoute, Method: "POST", URL: s.URL + path, Timeout: s.Timeout.Time(),
		Headers: head,
		Body:    func() ([]byte, error) { return r.Body.Raw(), nil }}}
}

// Score reads the answer.
func (s *dynamoFrontend) Score(c *picker.Cycle, in []int32, scores []float64) {
	a := c.Answer(s, KeyRoute)
	var got dynamo.Answer
	if a == nil || a.Err != nil || json.Unmarshal(a.Value, &got) != nil || got.Worker == 0 {
		return
	}
	b, _ := picker.Data[dynamoAsked](c.Decision, s)
	b.Worker, b.prefill, b.tokens = got.Worker, got.Prefill, got.Tokens
	for j, i := range in {
		if dynamo.IDOf(c.State(i).Name) == got.Worker {
			scores[j] = 1
		}
	}
}

// PreRequest names the worker in the header of the document's proposal, and has the body
// carry the tokens that the frontend has made.
func (s *dynamoFrontend) PreRequest(c *picker.Cycle) {
	b, r := picker.Peek[dynamoAsked](c.Decision, s), c.Decision.PrimaryProfile()
	if b == nil || !r.Ok() {
		return
	}
	c.Decision.SetHeader(headerGatewayWorker, dynamo.IDOf(c.State(r.Picked[0]).Name).String())
	if b.prefill != 0 {
		c.Decision.SetHeader(headerDynamoPrefill, b.prefill.String())
		c.Decision.SetHeader(headerDynamoMode, "disaggregated")
	}
	if s.ForwardTokens && len(b.tokens) > 0 {
		p := parse.TokenPrompt(b.tokens)
		carryTokens(c.Request, &p, "tokens")
	}
}

// ReadsProgress implements picker.ProgressReader.
func (*dynamoFrontend) ReadsProgress() bool { return true }

// ResponseBody reports at the first piece that the prompt is computed.
func (s *dynamoFrontend) ResponseBody(now machine.Time, r *picker.Response) {
	if r.First {
		s.addProgress(now, r.Decision, false)
	}
}

// Release reports that the request is over.
func (s *dynamoFrontend) Release(now machine.Time, d *picker.Decision) { s.addProgress(now, d, true) }

// addProgress keeps progress to send. Beyond the bound it drops the oldest, which the router then learns from its
// workers.
func (s *dynamoFrontend) addProgress(now machine.Time, d *picker.Decision, over bool) {
	if d == nil || picker.Peek[dynamoAsked](d, s) == nil {
		return
	}
	if len(s.progress) >= maxProgress {
		s.progress = append(s.progress[:0], s.progress[maxProgress/2:]...)
	}
	s.progress = append(s.progress, dynamo.Progress{ID: d.Request.ID, Over: over})
	s.sendAt = cmp.Or(s.sendAt, now.Add(sendAfter))
}

// SendAt returns when the pending progress is due: picker.Sender.
func (s *dynamoFrontend) SendAt() (machine.Time, bool) { return s.sendAt, s.sendAt > 0 }

// Send returns the call that reports the pending progress, if it is due.
func (s *dynamoFrontend) Send(now machine.Time) []picker.Need {
	if s.sendAt == 0 || s.sendAt > now {
		return nil
	}
	list := s.progress
	s.progress, s.sendAt = nil, 0
	return []picker.Need{{Plugin: s.Name(), Key: KeyProgress, Method: "POST", URL: s.URL + PathProgress,
		Timeout: s.Timeout.Time(), Subject: list,
		Body: func() ([]byte, error) { return json.Marshal(list) }}}
}

// SaveDecision keeps which worker was named.
func (s *dynamoFrontend) SaveDecision(d *picker.Decision) any {
	if b := picker.Peek[dynamoAsked](d, s); b != nil {
		return *b
	}
	return nil
}

// LoadDecision implements picker.DecisionKeeper.
func (s *dynamoFrontend) LoadDecision(d *picker.Decision, text []byte) error {
	b, _ := picker.Data[dynamoAsked](d, s)
	return json.Unmarshal(text, b)
}
