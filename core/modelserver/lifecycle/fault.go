package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fault holds the faults of one request at a model server, by their moment. The zero Fault is none.
type Fault [moments]Strike

// Moment is the time in a request's life at which a fault strikes.
type Moment uint8

// The values of Moment.
const (
	AtConnect    Moment = iota // before anything is read
	AtBody                     // the body has arrived, and the server has not read it
	AtAnswer                   // before the server answers anything
	AtPrefill                  // the engine has begun the prompt
	AtFirstToken               // a held-open request's first token has been sent
	AtTokens                   // so many tokens have been sent
	AtTransfer                 // before blocks are pulled
	moments
)

// Strike is the effect of a fault at its moment; the zero Strike has none.
type Strike struct {
	Do Action
	// N is Answer's status and, at AtTokens, the number of tokens sent before.
	N int
	// Failure names one of openai.FailureTypes, whose text an Answer has; if empty, the Answer has a text of its own.
	Failure string
	// For is the duration of Wait.
	For time.Duration
}

// Action is the kind of a fault's effect.
type Action uint8

// The values of Action. An action without a meaning at a moment does nothing there.
const (
	_      Action = iota
	Close         // closes the connection
	Reset         // breaks the connection: TCP RST, or a stream reset on HTTP/2
	Wait          // delays the request by Strike.For
	Answer        // answers with a status; 204 and other statuses without a body have none
	Empty         // answers 200 and ends without a byte of body
	End           // ends the response as if it were complete
	Stall         // stops sending and keeps the connection
	Lose          // fails the transfer
)

// faults lists all faults, in the order in which errors name them: the name, the moment, the effect, and the kind of
// value after "=".
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

// FaultForms returns all faults as ParseFault reads them, with N, CODE or DURATION for a value.
func FaultForms() (out []string) {
	for _, x := range faults {
		out = append(out, x.form)
	}
	return out
}

// read parses the value that a fault needs.
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

// ParseFault parses "kind", "kind=value" or several of them separated by semicolons. If two strike at one moment, the
// last one counts. An empty text is no fault.
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
	}
	forms := FaultForms()
	last := len(forms) - 1
	return fmt.Errorf("unknown fault %q, expected %s or %s", item, strings.Join(forms[:last], ", "), forms[last])
}

// FaultRule injects faults into some requests: those in Requests and the part Share of all others, or all if it has
// neither.
type FaultRule struct {
	Fault Fault
	// Share is the part of all requests, 0 to 1, drawn by the request's id.
	Share float64
	// Requests are ids.
	Requests map[string]bool
	// Servers are the numbers of the servers, from 0, that inject the faults; none is all.
	Servers map[int]bool
}

// Faults holds the rules of one run. The first rule that selects a request counts.
type Faults struct {
	Seed  uint64
	Rules []FaultRule
}

// Strike reports whether there is any rule.
func (f *Faults) Strike() bool { return len(f.Rules) > 0 }

// Of returns the faults of a request at a server. They are the same in every run and at every attempt.
func (f *Faults) Of(request string, server int) Fault {
	if len(f.Rules) == 0 {
		return Fault{}
	}
	draw := machine.DrawFor(f.Seed, "server", "fault", request)
	for i := range f.Rules {
		r := &f.Rules[i]
		drawn := draw.Float64() < r.Share // one draw for each rule, so that rules do not change each other's shares
		all := r.Share == 0 && len(r.Requests) == 0
		if (all || drawn || r.Requests[request]) && (len(r.Servers) == 0 || r.Servers[server]) {
			return r.Fault
		}
	}
	return Fault{}
}
