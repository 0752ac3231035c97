package lab

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/diagnosis"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// Figures plays the lab's traffic, and returns what it expects with what was found.
func (l *Lab) Figures(ctx context.Context, d Dir, s State) ([]record.Expectation, error) {
	if l.Play == "virtual" {
		return PlayVirtually(d, l)
	}
	before, err := l.Values(ctx, s)
	if err != nil {
		return nil, err
	}
	sum, err := PlayLive(ctx, d)
	if err != nil {
		return nil, err
	}
	counted, err := l.Judge(ctx, s, before)
	if err != nil {
		return nil, err
	}
	probed, err := l.Probe(ctx, s)
	return append(append(sum.Expectations, counted...), probed...), err
}

// PlayLive sends the lab's traffic to a running stack, with prompts of its own each time.
func PlayLive(ctx context.Context, d Dir) (report.Summary, error) {
	var none report.Summary
	at, err := d.State()
	if err != nil {
		return none, err
	}
	s, err := d.Traffic()
	if err != nil {
		return none, err
	}
	began := time.Now()
	clock := func() machine.Time { return machine.FromDuration(time.Since(began)) }
	session, err := report.Start(Quietly(s, clock))
	if err != nil {
		return none, err
	}
	sent := Send(ctx, s, at.Addresses, session, clock)
	sum, err := session.End(ctx.Err() != nil)
	return sum, errors.Join(sent, err)
}

// Traffic returns the lab's traffic, with prompts of its own each time.
func (d Dir) Traffic() (*scenario.Scenario, error) {
	s, err := scenario.Load(d.Scenario())
	if err != nil {
		return nil, err
	}
	seed := rand.Uint64N(1 << 40) //nolint:gosec // keeps the prompts of runs apart
	return s, s.Override(scenario.Overrides{Seed: &seed})
}

// Send sends a scenario's requests to the first Gateway.
func Send(ctx context.Context, s *scenario.Scenario, to *up.Addresses, r record.Recorder,
	clock func() machine.Time) error {
	load := s.Load()
	return client.Run(ctx, client.Options{Target: strings.TrimPrefix(to.Listeners[0].URL, "http://"),
		HTTP2: load.HTTP2, Chunked: load.Chunked, Timeout: load.Timeout, Requests: load.Requests.Requests,
		Concurrency: load.Concurrency, Workload: load.Requests, Recorder: r, Now: clock})
}

// Quietly returns the options for a run of s that prints nothing. clock is nil in virtual time.
func Quietly(s *scenario.Scenario, clock func() machine.Time) report.Options {
	return report.Options{Out: io.Discard, Detail: report.Quiet, Clock: clock, PrefixCache: s.CachesPrefixes(),
		Scenario: s.Name, Seed: s.Seed, Requests: s.Workload.Requests, InFlight: s.Workload.Requests,
		SLO:   s.Workload.SLO,
		Judge: report.JudgeBy(s.Expectations.Check)}
}

// PlayVirtually plays the lab's traffic in virtual time, with the manifests as they are now. It adds the lab's leaf to
// the expectations: windtunnel diagnose must not find it any more.
func PlayVirtually(d Dir, l *Lab) ([]record.Expectation, error) {
	s, err := scenario.Load(d.Scenario())
	if err != nil {
		return nil, err
	}
	r, err := diagnosis.Start(Quietly(s, nil))
	if err != nil {
		return nil, err
	}
	if _, err := virtual.Play(s, r, virtual.Options{Gaps: r.Gaps(), Served: r.SetLoads}); err != nil {
		return nil, errors.Join(err, r.Abandon())
	}
	facts, sum, err := r.Facts(false)
	if err != nil || l.Leaf == "" {
		return sum.Expectations, err
	}
	facts.Conversational = s.Workload.Conversations.Turns.Quantile(1) > 1
	e := record.Expectation{What: "leaf " + l.Leaf + " of windtunnel diagnose", Expected: "gone", Found: "gone",
		OK: true}
	if x := diagnose.Of(facts).Leaf(diagnose.Leaf(l.Leaf)); x != nil {
		e.Found, e.OK = string(x.Sure)+": "+strings.Join(x.Evidence, "; "), false
	}
	return append(sum.Expectations, e), nil
}
