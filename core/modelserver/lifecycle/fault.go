package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fault is what goes wrong with one request at a model server, by the moment. The
// zero Fault is none.
type Fault [moments]Strike

// Moment is when a fault strikes.
type Moment uint8

// The moments.
const (
	AtConnect    Moment = iota // before anything is read
	AtBody                     // the body is here, and nobody has read it
	AtAnswer                   // before anything is answered
	AtPrefill                  // the engine has begun the prompt
	AtFirstToken               // a held-open request's first token has been sent
	AtTokens                   // so many tokens have been sent
	AtTransfer                 // blocks would be pulled
	moments
)

// Strike is what a fault does at its moment; the zero Strike is nothing.
type Strike struct {
	Do Action
	// N is Answer's status, and at AtTokens how many tokens are sent before.
	N int
	// Failure is the failure of openai.FailureTypes whose words an Answer has; empty is an answer of its own.
	Failure string
	// For is how long Wait waits.
	For time.Duration
}

// Action is what a fault does.
type Action uint8

// The actions. At a moment where one of them means nothing it does nothing.
const (
	_      Action = iota
	Close         // closes the connection
	Reset         // breaks it: TCP RST, or a stream reset on HTTP/2
	Wait          // waits
	Answer        // answers with a status; 204 and other bodiless ones have no body
	Empty         // answers 200 and ends without a byte of body
	End           // ends the response as if all were said
	Stall         // stops sending and keeps the connection
	Lose          // fails
)

// faults are those that there are, in the order in which errors name them: how
// each is written, when it strikes and what it does. What follows "=" is what it
// needs.
var faults = []struct {
	form string
	at   Moment
	do   Action
}{
	{"refuse", AtConnect, Close},
	{"reset", AtConnect, Reset},
	{"reset-after=N", AtTokens, Reset},
	{"status=CODE", AtAnswer, Answer},
	{"delay=DURATION", AtBody, Wait},
	{"die-in-prefill", AtPrefill, Close},
	{"end-before-part2", AtFirstToken, End},
	{"no-body", AtAnswer, Empty},
	{"lose-kv", AtTransfer, Lose},
	{"stall", AtTokens, Stall},
	{"stall=N", AtTokens, Stall},
}

// read reads what a fault needs.
func (s *Strike) read(needs, arg string) (err error) {
	switch needs {
	case "N":
		if s.N, err = strconv.Atoi(arg); err != nil || s.N < 0 {
			return fmt.Errorf("expected a number of tokens, got %q", arg)
		}
	case "CODE":
		if s.N, err = strconv.Atoi(arg); err != nil || s.N < 200 || s.N > 599 {
			return fmt.Errorf("expected 200 to 599, got %q", arg)
		}
	case "DURATION":
		if s.For, err = time.ParseDuration(arg); err != nil || s.For < 0 || s.For > time.Hour {
			return fmt.Errorf("expected a duration up to 1h, for example 200ms, got %q", arg)
		}
	}
	return nil
}

// ParseFault reads "kind", "kind=value" or several of them separated by
// semicolons; of two that strike at one moment the last counts. An empty text is
// no fault.
func ParseFault(text string) (f Fault, err error) {
	if strings.TrimSpace(text) == "" {
		return f, nil
	}
	for item := range strings.SplitSeq(text, ";") {
		if err := f.read(strings.TrimSpace(item)); err != nil {
			return Fault{}, err
		}
	}
	return f, nil
}

func (f *Fault) read(item string) error {
	kind, arg, valued := strings.Cut(item, "=")
	var forms []string
	for _, x := range faults {
		name, needs, needed := strings.Cut(x.form, "=")
		if name == kind && needed == valued {
			s := Strike{Do: x.do}
			if err := s.read(needs, arg); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			f[x.at] = s
			return nil
		}
		forms = append(forms, x.form)
	}
	last := len(forms) - 1
	return fmt.Errorf("unknown fault %q, expected %s or %s", item, strings.Join(forms[:last], ", "), forms[last])
}

// FaultRule spoils some requests: those in Requests and the part Share of all
// others, or every one where it has neither.
type FaultRule struct {
	Fault Fault
	// Share is the part of all requests, 0 to 1, drawn by the request's id.
	Share float64
	// Requests are ids.
	Requests map[string]bool
	// Servers are the numbers of the servers, from 0, that do it; none is all.
	Servers map[int]bool
}

// Faults are the rules of one run. The first that selects a request counts.
type Faults struct {
	Seed  uint64
	Rules []FaultRule
}

// Strike says whether they may strike anybody.
func (f *Faults) Strike() bool { return len(f.Rules) > 0 }

// Of is what goes wrong with a request at a server: the same in every run, at
// every attempt, whatever else happens.
func (f *Faults) Of(request string, server int) Fault {
	if len(f.Rules) == 0 {
		return Fault{}
	}
	draw := machine.DrawFor(f.Seed, "server", "fault", request)
	for i := range f.Rules {
		r := &f.Rules[i]
		drawn := draw.Float64() < r.Share // one for each rule, so that no rule eats another's share
		all := r.Share == 0 && len(r.Requests) == 0
		if (all || drawn || r.Requests[request]) && (len(r.Servers) == 0 || r.Servers[server]) {
			return r.Fault
		}
	}
	return Fault{}
}
