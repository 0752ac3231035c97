package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Incident is something that happened to a part of the run.
type Incident struct {
	// At and Until are the begin and the end, in seconds since the run began. Until is 0 without an end.
	At    float64 `json:"at"`
	Until float64 `json:"until,omitempty"`
	Hop   string  `json:"hop"`
	// What is the incident's name in the scenario, and Endpoint the server that it happened to, if any.
	What     string `json:"what"`
	Endpoint string `json:"endpoint,omitempty"`
}

// Bounds of what is counted separately.
const maxIncidents, maxRefusals = 32, 32

// noteRefusal counts an answer that does not come from a model server, by hop and reason.
func (t *Tally) noteRefusal(r *openRequest, e *record.Event) {
	if e.Step != record.Answered && e.Step != record.Rejected {
		return
	}
	reason := detail(e, "reason")
	if reason == "" {
		return
	}
	if t.refusals == nil {
		t.refusals = counts[string]{}
	}
	r.refusal = string(e.Hop) + ": " + grouped(reason)
	t.refusals.add(r.refusal, maxRefusals)
	r.refusal = r.refusal[:min(len(r.refusal), longestName)]
}

// limits maps the beginnings of the endpoint picker's reasons to the fields of a scenario's pool that set the limit.
var limits = map[string]string{
	"the request body has more than ":           "epp.maxBodyBytes",
	"the request's body was not whole after ":   "epp.bodyTimeout",
	"the request's body came to a halt: ":       "epp.bodyIdleTimeout",
	"the endpoint picker did not decide within": "epp.deadline",
	"no first token within the hold limit of ":  "epp.holdLimit",
}

// grouped returns a reason without what differs between requests, and with the scenario's field that sets the limit.
func grouped(reason string) string {
	if _, limit, is := strings.Cut(reason, "maximum context length is "); is { // the rest has the request's own lengths
		tokens, _, _ := strings.Cut(limit, " ")
		return "prompt and answer have more than " + tokens + " tokens (modelServer.maxModelLen, --max-model-len)"
	}
	for begin, field := range limits {
		if strings.HasPrefix(reason, begin) {
			return reason + " (" + field + ")"
		}
	}
	return reason
}

// noteFailure counts why a request did not complete, by outcome.
func (t *Tally) noteFailure(f ending) {
	if _, known := t.outcomes[f.outcome]; !known || f.outcome == record.Completed {
		return
	}
	reasons := t.reasons[f.outcome]
	if reasons == nil {
		reasons = counts[string]{}
		t.reasons[f.outcome] = reasons
	}
	reasons.add(cmp.Or(grouped(f.reason), f.refusal, "no reason was given"), maxRefusals)
}

// noteIncident notes the begin or end of an incident.
func (t *Tally) noteIncident(e *record.Event) {
	text := func(s string) string { return strings.Clone(s[:min(len(s), longestName)]) }
	what := detail(e, "what")
	switch {
	case e.Step == record.IncidentBegan && len(t.incidents) < maxIncidents:
		t.incidents = append(t.incidents,
			Incident{At: round(e.Time.Seconds()), Hop: text(string(e.Hop)), What: text(what),
				Endpoint: text(e.Endpoint)})
	case e.Step == record.IncidentEnded:
		for i := range t.incidents {
			if x := &t.incidents[i]; x.Until == 0 && x.What == what && x.Endpoint == e.Endpoint {
				x.Until = round(e.Time.Seconds())
				return
			}
		}
	}
}

// writeTrouble adds a line with the reasons of refusals, and one with incidents.
func (s Summary) writeTrouble(l *lines) {
	var list []string
	for _, reason := range slices.SortedFunc(maps.Keys(s.Refusals), func(a, b string) int {
		return cmp.Or(s.Refusals[b]-s.Refusals[a], strings.Compare(a, b))
	}) {
		list = append(list, fmt.Sprintf("%s %s", reason, terminal.Thousands(s.Refusals[reason])))
	}
	const most = 4
	if len(list) > most {
		list = append(list[:most], "…")
	}
	l.list("refused", list)
	list = nil
	for _, x := range s.Incidents {
		text := strings.TrimRight(fmt.Sprintf("%s at %s %s", x.What, terminal.Span(x.At), x.Endpoint), " ")
		if x.Until > 0 {
			text += " until " + terminal.Span(x.Until)
		}
		list = append(list, text)
	}
	if len(list) > most {
		list = append(list[:most], "…")
	}
	l.list("incidents", list)
}
