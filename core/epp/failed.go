package epp

import (
	"net/url"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/record"
)

// A request proceeds without the answers that did not come, which is easily taken for a bad decision. So the record has
// them.

// callsFailed records the plug-ins' calls for a request that failed.
func (m *Machine) callsFailed(r *Request, answers []picker.Answer) {
	if m.c.Stream.Recorder == nil {
		return
	}
	for i := range answers {
		a := &answers[i]
		if a.Err == nil {
			continue
		}
		where := ""
		for j := range r.Needs {
			if n := &r.Needs[j]; n.Plugin == a.Plugin && n.Key == a.Key {
				where = n.URL
			}
		}
		m.c.Stream.Recorder.Record(
			record.Event{Time: m.now, Request: r.ID, Attempt: 1, Hop: record.EPP, Step: record.CallFailed,
				Details: record.Details{record.D("plugin", a.Plugin), record.D("url", withoutSecrets(where)),
					record.D("reason", a.Err.Error())}})
	}
}

// checkPrediction records a request's predicted latencies beside the measured ones.
func (m *Machine) checkPrediction(r *Request) {
	if m.c.Stream.Recorder == nil {
		return
	}
	for _, x := range m.p.LatencyPredictors() {
		var f picker.PredictionOutcome
		var ok bool
		if m.p.Guard(x, func() { f, ok = x.PredictionOutcome(r.Decision) }) != nil || !ok {
			continue
		}
		var out record.Details
		add := func(name string, predicted, observed float64) {
			if observed <= 0 {
				return
			}
			if f.Predicted {
				out = append(out, record.D("predicted_"+name, predicted))
			}
			out = append(out, record.D(name, observed))
		}
		add("ttft_ms", f.Prediction.TTFTMs, f.Observed.TTFTMs)
		add("tpot_ms", f.Prediction.TPOTMs, f.Observed.TPOTMs)
		e := record.Event{Time: m.now, Request: r.ID, Attempt: 1, Hop: record.EPP, Step: record.PredictionChecked,
			Details: out}
		if t := r.Decision.Targets; len(t) > 0 {
			e.Endpoint = t[0].HostPort
		}
		m.c.Stream.Recorder.Record(e)
	}
}

// scrapeFailed records a failed scrape, of several in a row the first.
func (m *Machine) scrapeFailed(x *Scraped, src *Source, t *targetSource) {
	was := t.failing
	if t.failing = x.Err != nil; was || !t.failing || m.c.Stream.Recorder == nil {
		return
	}
	m.c.Stream.Recorder.Record(
		record.Event{Time: m.now, Hop: record.EPP, Step: record.ScrapeFailed, Endpoint: x.Target.HostPort(),
			Details: record.Details{record.D("plugin", src.Source.Name()), record.D("name", x.Target.Name),
				record.D("url", src.URL(x.Target)), record.D("reason", x.Err.Error())}})
}

// withoutSecrets returns a URL without user, query and fragment, which may hold secrets; "" if it cannot be parsed.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
