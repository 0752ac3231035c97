package report

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Sending implements record.Lives.
func (t *Tally) Sending(_ machine.Time, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sending += by; by > 0 {
		t.good.sending()
	}
}

// Lived implements record.Lives. It has the effect of Record for all events of the life.
func (t *Tally) Lived(l *record.Life) {
	if l.Sidecar != nil {
		t.Sending(l.LastGot, -1)
		for e := range l.Events {
			t.Record(e)
		}
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sending--
	t.lives++
	t.finished++
	t.outcomes.add(l.Outcome(), maxOutcomes)
	t.last, t.sentTo = max(t.last, l.LastGot), max(t.sentTo, l.Sent)
	t.pods.add(l.Endpoint, maxEndpoints)
	cached := min(l.Cached, l.Prompt)
	t.cache.prompt += l.Prompt
	t.cache.cached += cached
	at := times(l)
	for _, s := range t.index.lives {
		t.measure(s.span, at[s.to]-at[s.from], l.Request)
	}
	class, slo := t.good.sent(l.Class, l.SLO)
	e := Ended{Number: int32(min(l.Number, 1<<31-1)), Sent: l.Sent, TTFT: l.FirstGot - l.Sent, E2E: l.LastGot - l.Sent,
		Completed: true,
		Prompt:    int32(min(l.Prompt, 1<<31-1)), Cached: int32(min(cached, 1<<31-1)),
		Tokens: int32(min(l.Tokens, 1<<31-1))}
	e.judge(slo)
	t.good.ended(class, slo, &e)
	t.pools.countLife(l, &e)
	if t.rows != nil {
		t.addLifeRow(l, e)
	}
	t.keep(e)
	t.series.sent(l.Sent)
	t.series.ended(&e, l.Outcome(), l.LastGot)
	t.output += float64(e.Tokens)
}

// times returns the times of a life in the order of its steps.
func times(l *record.Life) [10]machine.Time {
	return [...]machine.Time{l.Sent, l.Picked, l.Reached, l.Started, l.First, l.FirstSeen, l.FirstGot, l.Last,
		l.LastSeen, l.LastGot}
}

// lifeSpan is a span that lives have, from one of their times to another.
type lifeSpan struct{ span, from, to int }

// lifeSpansOf finds the spans that lives have.
func lifeSpansOf(spans []Span) (out []lifeSpan) {
	probe := record.Life{Picked: 1, Reached: 2, Started: 3, First: 4, FirstSeen: 5, FirstGot: 6, Last: 7, LastSeen: 8,
		LastGot: 9}
	place := map[record.At]int{} // among the times
	for e := range probe.Events {
		place[record.At{Hop: e.Hop, Step: e.Step}] = int(e.Time)
	}
	for i := range spans {
		for _, at := range spans[i].From {
			from, begins := place[at]
			to, ends := place[spans[i].To]
			if begins && ends && !spans[i].Leg {
				out = append(out, lifeSpan{i, from, to})
			}
		}
	}
	return out
}

// addLives counts the steps of requests that were recorded as lives.
func (t *Tally) addLives(hops map[record.Hop]map[record.Step]int) {
	if t.lives+t.sending == 0 {
		return
	}
	for e := range new(record.Life).Events {
		if hops[e.Hop] == nil {
			hops[e.Hop] = map[record.Step]int{}
		}
		hops[e.Hop][e.Step] += t.lives
	}
	hops[record.Client][record.RequestSent] += t.sending
}

// Lives implements record.Summing. It returns nil where a reader needs events: JSON lines, steps, recordings, and pools
// with several pickers.
func (s *Session) Lives() record.Lives {
	if s.tally.pools.named() || s.ordered != nil || s.lines != nil || s.file != nil || s.options.Also != nil ||
		s.view != nil && (s.view.detail == Steps || s.view.detail == Lines) {
		return nil
	}
	return lives{s}
}

// Lives implements record.Summing.
func (t *Tally) Lives() record.Lives { return t }

// lives passes lives to a session's tally, and shows the progress of the run.
type lives struct{ *Session }

func (x lives) Sending(now machine.Time, by int) {
	x.tally.Sending(now, by)
	x.progress(now)
}

func (x lives) Lived(l *record.Life) {
	x.tally.Lived(l)
	x.progress(l.LastGot)
}

func (x lives) progress(now machine.Time) {
	if x.view != nil && x.view.detail == Progress {
		x.view.counts(now)
	}
}
