package record

import "github.com/windtunnel/windtunnel/core/machine"

// Life is all that happens to a plain request that is answered wholly, where
// nothing else happens to it and nobody reads more: it stands for the events of
// Events. A time that has not come is machine.Never.
type Life struct {
	Request string
	// Number is the one in Request.
	Number int
	// Class is that of the traffic, and SLO what a good request keeps to, as
	// RequestSent tells them.
	Class, SLO string
	// Endpoint is the model server.
	Endpoint string

	Sent      machine.Time // by the client
	Picked    machine.Time // at the EPP, which decides at once
	Reached   machine.Time // the model server
	Started   machine.Time // the prefill
	First     machine.Time // token, at the model server
	FirstSeen machine.Time // piece of the answer, at the EPP
	FirstGot  machine.Time // piece of the answer, at the client
	Last      machine.Time // token, at the model server
	LastSeen  machine.Time // piece of the answer, at the EPP
	LastGot   machine.Time // piece of the answer, at the client

	// Sidecar is what happened at the routing sidecar before the model server; nil
	// where there is none.
	Sidecar *SidecarLife

	// Prompt is its tokens, Cached how many of them were cached, and Tokens those of
	// the answer.
	Prompt, Cached, Tokens int
}

// SidecarLife is all that happens to such a request at a routing sidecar and by it: a
// prefill leg, if any, and a decode leg.
type SidecarLife struct {
	// Behind is the model server by the address that it has behind the sidecar.
	Behind string
	// Prefiller is the prefill leg's server; empty is none.
	Prefiller string

	Reached        machine.Time // the sidecar
	PrefillReached machine.Time // the prefill leg its server
	PrefillStarted machine.Time
	PrefillEnded   machine.Time // with its one token, at its server
	Prefilled      machine.Time // its answer at the sidecar
	FirstSeen      machine.Time // piece of the answer
	LastSeen       machine.Time // piece of the answer

	// Prompt is the prompt's tokens as the prefill leg has them, Cached how many of them
	// its server had. Fetched is how long it took the decode leg to fetch them, and FetchedBytes how
	// much that was.
	Prompt, Cached int
	Fetched        machine.Time
	FetchedBytes   int64
}

// NewSidecarLife is one of which nothing has happened.
func NewSidecarLife(behind, prefiller string) SidecarLife {
	return SidecarLife{Behind: behind, Prefiller: prefiller, Reached: machine.Never, PrefillReached: machine.Never,
		PrefillStarted: machine.Never,
		PrefillEnded:   machine.Never, Prefilled: machine.Never, FirstSeen: machine.Never, LastSeen: machine.Never}
}

// Outcome is how the request ends.
func (l *Life) Outcome() Outcome { return Completed }

// Status is that of the answer, of HTTP.
func (l *Life) Status() int { return 200 }

// Lives is a Recorder that takes a Life in the place of its events.
type Lives interface {
	Recorder
	// Sending is told that a request is sent of which there will be a Life, or, with
	// -1, that its events come after all.
	Sending(now machine.Time, by int)
	// Lived takes the Life of one that was Sending, when it ends.
	Lived(l *Life)
}

// Summing is a Recorder that may take lives in the place of events.
type Summing interface {
	Recorder
	// Lives is what takes them, nil where somebody wants the events.
	Lives() Lives
}

// LivesOf is what takes lives for r, nil where nothing does.
func LivesOf(r Recorder) Lives {
	if s, ok := r.(Summing); ok {
		return s.Lives()
	}
	return nil
}

// Events are those that the Life stands for, as far as their times have come, with the
// details that a summary reads: at each hop in the order of time.
func (l *Life) Events(yield func(Event) bool) {
	for _, x := range [...]lived{
		{l.Sent, Client, []Step{RequestSent}, "", Told(l.Class, l.SLO)},
		{l.Picked, EPP, []Step{RequestReceived}, "", nil},
		{l.Picked, EPP, []Step{EndpointPicked, RequestPassed}, l.Endpoint, nil},
	} {
		if !l.tell(&x, yield) {
			return
		}
	}
	server, started := l.Endpoint, Details{D("cached_tokens", l.Cached)}
	if s := l.Sidecar; s != nil {
		if !s.begins(l, yield) {
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
	for _, x := range [...]lived{
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
		if !l.tell(&x, yield) {
			return
		}
	}
}

// nowhere is no sidecar.
var nowhere = NewSidecarLife("", "")

// lived are steps of a life.
type lived struct {
	at       machine.Time
	hop      Hop
	steps    []Step
	endpoint string
	details  Details
}

// tell is false where nobody wants to hear more.
func (l *Life) tell(x *lived, yield func(Event) bool) bool {
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

// begins tells what happens up to the decode leg.
func (s *SidecarLife) begins(l *Life, yield func(Event) bool) bool {
	first := lived{s.Reached, Sidecar, []Step{RequestReceived}, l.Endpoint, nil}
	if s.Prefiller == "" {
		first.steps = []Step{RequestReceived, PrefillDecided, DecodeLegSent}
		return l.tell(&first, yield)
	}
	for _, x := range [...]lived{
		first,
		{s.Reached, Sidecar, []Step{PrefillDecided, PrefillLegSent}, s.Prefiller, nil},
		{s.PrefillReached, Server, []Step{RequestReceived}, s.Prefiller, Details{D("prompt_tokens", s.Prompt)}},
		{s.PrefillStarted, Server, []Step{PrefillStarted}, s.Prefiller, Details{D("cached_tokens", s.Cached)}},
		{s.PrefillEnded, Server, []Step{PrefillFinished, FirstTokenSent, DecodeStarted}, s.Prefiller, nil},
		{s.PrefillEnded, Server, []Step{LastTokenSent}, s.Prefiller, Details{D("tokens", 1)}},
		{s.Prefilled, Sidecar, []Step{PrefillLegEnded}, s.Prefiller, nil},
		{s.Prefilled, Sidecar, []Step{DecodeLegSent}, l.Endpoint, nil},
	} {
		if !l.tell(&x, yield) {
			return false
		}
	}
	return true
}

// Fetched are the details of PrefillStarted about a KV cache that has come from another
// server: how long it took, and its bytes on the wire.
func Fetched(took machine.Time, bytes int64) Details {
	return Details{D("fetched_bytes", int(bytes)), D("fetched_us", int(took/machine.Microsecond))}
}

// Told are the details of RequestSent that summaries read: the class of the traffic
// and what a good request keeps to, either of which may be empty.
func Told(class, slo string) Details {
	var details Details
	if class != "" {
		details = append(details, D("class", class))
	}
	if slo != "" {
		details = append(details, D("slo", slo))
	}
	return details
}
