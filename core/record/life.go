package record

import "github.com/windtunnel/windtunnel/core/machine"

// Life holds the times of a plain request with a complete answer, for runs in which no reader needs more. It stands for
// the events that Events returns. A time that has not come is machine.Never.
type Life struct {
	Request string
	// Number is the number in Request.
	Number int
	// Class is the traffic's class, and SLO the objectives of a good request, as in RequestSent's details.
	Class, SLO string
	Endpoint   string

	Sent      machine.Time // by the client
	Picked    machine.Time // at the EPP, which decides at once
	Reached   machine.Time // at the model server
	Started   machine.Time // of the prefill
	First     machine.Time // token sent by the model server
	FirstSeen machine.Time // piece of the answer at the EPP
	FirstGot  machine.Time // piece of the answer at the client
	Last      machine.Time // token sent by the model server
	LastSeen  machine.Time // piece of the answer at the EPP
	LastGot   machine.Time // piece of the answer at the client

	// Sidecar holds the times at the routing sidecar in front of the model server; nil without one.
	Sidecar *SidecarLife

	// Prompt is the prompt's length in tokens, Cached how many of them were cached, and Tokens the answer's length.
	Prompt, Cached, Tokens int
}

// SidecarLife holds the times of such a request at a routing sidecar: of a prefill leg, if any, and of a decode leg.
type SidecarLife struct {
	// Behind is the model server's address behind the sidecar.
	Behind string
	// Prefiller is the prefill leg's server; empty without a prefill leg.
	Prefiller string

	Reached        machine.Time // at the sidecar
	PrefillReached machine.Time // prefill leg at its server
	PrefillStarted machine.Time
	PrefillEnded   machine.Time // one token generated at the prefill server
	Prefilled      machine.Time // the prefill leg's answer at the sidecar
	FirstSeen      machine.Time // piece of the answer at the sidecar
	LastSeen       machine.Time // piece of the answer at the sidecar

	// Prompt is the prompt's length in tokens in the prefill leg, Cached how many of them its server had cached.
	// Fetched is how long the decode leg fetched the KV cache, and FetchedBytes the size of the transfer.
	Prompt, Cached int
	Fetched        machine.Time
	FetchedBytes   int64
}

// NewSidecarLife returns a SidecarLife in which nothing has happened yet.
func NewSidecarLife(behind, prefiller string) SidecarLife {
	return SidecarLife{Behind: behind, Prefiller: prefiller, Reached: machine.Never, PrefillReached: machine.Never,
		PrefillStarted: machine.Never,
		PrefillEnded:   machine.Never, Prefilled: machine.Never, FirstSeen: machine.Never, LastSeen: machine.Never}
}

func (l *Life) Outcome() Outcome { return Completed }

// Status returns the answer's HTTP status.
func (l *Life) Status() int { return 200 }

// Lives is a Recorder that takes a Life in place of its events.
type Lives interface {
	Recorder
	// Sending announces that a Life of a request will follow, by +1, or, by -1, that its events follow instead.
	Sending(now machine.Time, by int)
	// Lived takes the Life of an announced request when the request ends.
	Lived(l *Life)
}

// Summing is a Recorder that may take lives in place of events.
type Summing interface {
	Recorder
	// Lives returns the Recorder for lives, nil where a reader wants the events.
	Lives() Lives
}

// LivesOf returns the Recorder that takes lives for r, nil if there is none.
func LivesOf(r Recorder) Lives {
	if s, ok := r.(Summing); ok {
		return s.Lives()
	}
	return nil
}

// Events yields the events that the Life stands for, as far as their times have come, with the details that a summary
// reads. At each hop they are in the order of time.
func (l *Life) Events(yield func(Event) bool) {
	for _, x := range [...]lifeSteps{
		{l.Sent, Client, []Step{RequestSent}, "", SentDetails(l.Class, l.SLO)},
		{l.Picked, EPP, []Step{RequestReceived}, "", nil},
		{l.Picked, EPP, []Step{EndpointPicked, RequestPassed}, l.Endpoint, nil},
	} {
		if !l.emit(&x, yield) {
			return
		}
	}
	server, started := l.Endpoint, Details{D("cached_tokens", l.Cached)}
	if s := l.Sidecar; s != nil {
		if !s.emitPrefill(l, yield) {
			return
		}
		if server = s.Behind; s.FetchedBytes > 0 {
			started = append(started, Fetched(s.Fetched, s.FetchedBytes)...)
		}
	}
	s := l.Sidecar
	if s == nil {
		s = &nowhere
	}
	for _, x := range [...]lifeSteps{
		{l.Reached, Server, []Step{RequestReceived}, server, Details{D("prompt_tokens", l.Prompt)}},
		{l.Started, Server, []Step{PrefillStarted}, server, started},
		{l.First, Server, []Step{PrefillFinished, FirstTokenSent, DecodeStarted}, server, nil},
		{s.FirstSeen, Sidecar, []Step{ResponseHeadersSeen, FirstTokenSeen}, l.Endpoint, nil},
		{l.FirstSeen, EPP, []Step{ResponseHeadersSeen, FirstTokenSeen}, l.Endpoint, nil},
		{l.FirstGot, Client, []Step{FirstTokenReceived}, "", nil},
		{l.Last, Server, []Step{LastTokenSent}, server, Details{D("tokens", l.Tokens)}},
		{s.LastSeen, Sidecar, []Step{ResponseEndSeen}, l.Endpoint, nil},
		{l.LastSeen, EPP, []Step{ResponseEndSeen}, l.Endpoint, nil},
		{l.LastGot, Client, []Step{LastTokenReceived}, "", Details{D("tokens", l.Tokens)}},
		{l.LastGot, Client, []Step{Finished}, "",
			Details{D("outcome", string(l.Outcome())), D("status", l.Status()), D("tokens", l.Tokens)}},
	} {
		if !l.emit(&x, yield) {
			return
		}
	}
}

// nowhere stands for no sidecar.
var nowhere = NewSidecarLife("", "")

// lifeSteps are steps of a Life at one time and hop.
type lifeSteps struct {
	at       machine.Time
	hop      Hop
	steps    []Step
	endpoint string
	details  Details
}

// emit yields the steps' events. It returns false when the reader stops.
func (l *Life) emit(x *lifeSteps, yield func(Event) bool) bool {
	if x.at == machine.Never {
		return true
	}
	for _, step := range x.steps {
		e := Event{Time: x.at, Request: l.Request, Hop: x.hop, Step: step, Endpoint: x.endpoint, Details: x.details}
		if x.hop != Client {
			e.Attempt = 1
		}
		if !yield(e) {
			return false
		}
	}
	return true
}

// emitPrefill yields the events before the decode leg.
func (s *SidecarLife) emitPrefill(l *Life, yield func(Event) bool) bool {
	first := lifeSteps{s.Reached, Sidecar, []Step{RequestReceived}, l.Endpoint, nil}
	if s.Prefiller == "" {
		first.steps = []Step{RequestReceived, PrefillDecided, DecodeLegSent}
		return l.emit(&first, yield)
	}
	for _, x := range [...]lifeSteps{
		first,
		{s.Reached, Sidecar, []Step{PrefillDecided, PrefillLegSent}, s.Prefiller, nil},
		{s.PrefillReached, Server, []Step{RequestReceived}, s.Prefiller, Details{D("prompt_tokens", s.Prompt)}},
		{s.PrefillStarted, Server, []Step{PrefillStarted}, s.Prefiller, Details{D("cached_tokens", s.Cached)}},
		{s.PrefillEnded, Server, []Step{PrefillFinished, FirstTokenSent, DecodeStarted}, s.Prefiller, nil},
		{s.PrefillEnded, Server, []Step{LastTokenSent}, s.Prefiller, Details{D("tokens", 1)}},
		{s.Prefilled, Sidecar, []Step{PrefillLegEnded}, s.Prefiller, nil},
		{s.Prefilled, Sidecar, []Step{DecodeLegSent}, l.Endpoint, nil},
	} {
		if !l.emit(&x, yield) {
			return false
		}
	}
	return true
}

// Fetched returns the details of PrefillStarted for a KV cache that came from another server: how long the transfer
// took, and its bytes on the wire.
func Fetched(took machine.Time, bytes int64) Details {
	return Details{D("fetched_bytes", int(bytes)), D("fetched_us", int(took/machine.Microsecond))}
}

// SentDetails returns the details of RequestSent that summaries read: the traffic's class and the objectives of a good
// request. Either may be empty.
func SentDetails(class, slo string) Details {
	var details Details
	if class != "" {
		details = append(details, D("class", class))
	}
	if slo != "" {
		details = append(details, D("slo", slo))
	}
	return details
}
