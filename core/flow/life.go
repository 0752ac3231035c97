package flow

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

	// Prompt is its tokens, Cached how many of them were cached, and Tokens those of
	// the answer.
	Prompt, Cached, Tokens int
}

// Outcome is how the request ends.
func (l *Life) Outcome() Outcome { return Completed }

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
	for _, x := range [...]struct {
		at      machine.Time
		hop     Hop
		steps   []Step
		details Details
	}{
		{l.Sent, Client, []Step{RequestSent}, Told(l.Class, l.SLO)},
		{l.Picked, EPP, []Step{RequestReceived, EndpointPicked, RequestPassed}, nil},
		{l.Reached, Server, []Step{RequestReceived}, Details{D("prompt_tokens", l.Prompt)}},
		{l.Started, Server, []Step{PrefillStarted}, Details{D("cached_tokens", l.Cached)}},
		{l.First, Server, []Step{PrefillFinished, FirstTokenSent, DecodeStarted}, nil},
		{l.FirstSeen, EPP, []Step{ResponseHeadersSeen, FirstTokenSeen}, nil},
		{l.FirstGot, Client, []Step{FirstTokenReceived}, nil},
		{l.Last, Server, []Step{LastTokenSent}, Details{D("tokens", l.Tokens)}},
		{l.LastSeen, EPP, []Step{ResponseEndSeen}, nil},
		{l.LastGot, Client, []Step{LastTokenReceived}, Details{D("tokens", l.Tokens)}},
		{l.LastGot, Client, []Step{Finished}, Details{D("outcome", string(l.Outcome())), D("tokens", l.Tokens)}},
	} {
		for _, step := range x.steps {
			e := Event{Time: x.at, Request: l.Request, Hop: x.hop, Step: step, Details: x.details}
			if x.hop != Client {
				e.Attempt = 1
				if x.hop == Server || step != RequestReceived {
					e.Endpoint = l.Endpoint
				}
			}
			if x.at != machine.Never && !yield(e) {
				return
			}
		}
	}
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
