package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Fault is what goes wrong with one request at a model server. The zero Fault
// is none.
type Fault struct {
	// Refuse closes the connection before anything is read.
	Refuse bool
	// Reset breaks the connection (TCP RST, or a stream reset on HTTP/2)
	// before anything is answered.
	Reset bool
	// Status answers at once with this status; 204 and other bodiless ones
	// have no body.
	Status int
	// Delay waits before anything is answered.
	Delay time.Duration
	// DieInPrefill breaks the connection once the engine has begun the prompt.
	DieInPrefill bool
	// EndBeforePart2 ends the response after the first token without waiting
	// for part 2 of a held-open request.
	EndBeforePart2 bool
	// NoBody answers 200 and ends without a byte of body.
	NoBody bool
	// StallAfter stops sending after so many tokens and keeps the connection;
	// 0 stalls before the first token. Nil does not stall.
	StallAfter *int
	// ResetAfter breaks the connection after so many tokens.
	ResetAfter *int
	// LoseKV fails the KV transfer of a request that would pull blocks.
	LoseKV bool
}

// faults are those that there are, in the order in which errors name them: how
// each is written, and what that says. A text after "=" is what the fault needs.
var faults = []struct {
	form string
	set  func(f *Fault, arg string) error
}{
	{"refuse", flag(func(f *Fault) *bool { return &f.Refuse })},
	{"reset", flag(func(f *Fault) *bool { return &f.Reset })},
	{"reset-after=N", tokens(func(f *Fault) **int { return &f.ResetAfter })},
	{"status=CODE", func(f *Fault, arg string) (err error) {
		if f.Status, err = strconv.Atoi(arg); err != nil || f.Status < 200 || f.Status > 599 {
			return fmt.Errorf("expected 200 to 599, got %q", arg)
		}
		return nil
	}},
	{"delay=DURATION", func(f *Fault, arg string) (err error) {
		if f.Delay, err = time.ParseDuration(arg); err != nil || f.Delay < 0 || f.Delay > time.Hour {
			return fmt.Errorf("expected a duration up to 1h, for example 200ms, got %q", arg)
		}
		return nil
	}},
	{"die-in-prefill", flag(func(f *Fault) *bool { return &f.DieInPrefill })},
	{"end-before-part2", flag(func(f *Fault) *bool { return &f.EndBeforePart2 })},
	{"no-body", flag(func(f *Fault) *bool { return &f.NoBody })},
	{"lose-kv", flag(func(f *Fault) *bool { return &f.LoseKV })},
	{"stall", func(f *Fault, _ string) error { f.StallAfter = new(int); return nil }},
	{"stall=N", tokens(func(f *Fault) **int { return &f.StallAfter })},
}

func flag(of func(*Fault) *bool) func(*Fault, string) error {
	return func(f *Fault, _ string) error { *of(f) = true; return nil }
}

func tokens(of func(*Fault) **int) func(*Fault, string) error {
	return func(f *Fault, arg string) error {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 0 {
			return fmt.Errorf("expected a number of tokens, got %q", arg)
		}
		*of(f) = &n
		return nil
	}
}

// ParseFault reads "kind", "kind=value" or several of them separated by
// semicolons. An empty text is no fault.
func ParseFault(text string) (Fault, error) {
	var f Fault
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
		name, _, needs := strings.Cut(x.form, "=")
		if name == kind && needs == valued {
			if err := x.set(f, arg); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
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
