package report

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// shown is an event whose names a view may print and keep: none is longer than
// a line. Its details' values are for value, which clips and quotes them.
func shown(e flow.Event) flow.Event {
	e.Hop, e.Step, e.Endpoint = flow.Hop(name(string(e.Hop))), flow.Step(name(string(e.Step))), name(e.Endpoint)
	for i := range e.Details {
		if key := e.Details[i].Key; name(key) != key {
			e.Details = slices.Clone(e.Details)
			for j := range e.Details {
				e.Details[j].Key = name(e.Details[j].Key)
			}
			break
		}
	}
	return e
}

// name is Printable text of a bounded length.
func name(text string) string {
	if len(text) > longestName {
		text = text[:longestName] + "…"
	}
	return terminal.Printable(text)
}

// printable is a summary all of whose names may be printed.
func (s Summary) printable() Summary {
	s.Outcomes, s.Endpoints, s.PrefillServers = printableKeys(s.Outcomes), printableKeys(s.Endpoints),
		printableKeys(s.PrefillServers)
	s.NotCompleted = printableKeys(s.NotCompleted)
	for o, ids := range s.NotCompleted {
		s.NotCompleted[o] = printableAll(ids)
	}
	if x := s.ByHand; x != nil {
		s.ByHand = &ByHand{x.Requests, printableKeys(x.Statuses), printableKeys(x.Endpoints)}
	}
	s.Hops = printableKeys(s.Hops)
	for hop, steps := range s.Hops {
		s.Hops[hop] = printableKeys(steps)
	}
	s.Spans = slices.Clone(s.Spans)
	for i := range s.Spans {
		s.Spans[i].Name, s.Spans[i].Slowest = terminal.Printable(s.Spans[i].Name), name(s.Spans[i].Slowest)
	}
	s.IndexLag = slices.Clone(s.IndexLag)
	for i := range s.IndexLag {
		x := &s.IndexLag[i]
		x.Index, x.Excuse = terminal.Printable(x.Index), terminal.Printable(x.Excuse)
	}
	s.Warnings = slices.Clone(s.Warnings)
	for i := range s.Warnings {
		x := &s.Warnings[i]
		x.Plugin, x.URL, x.Reason = terminal.Printable(x.Plugin), terminal.Printable(x.URL),
			terminal.Printable(x.Reason)
	}
	if x := s.Predictions; x != nil {
		told := *x
		told.Endpoints = printableKeys(x.Endpoints)
		s.Predictions = &told
	}
	s.Refusals, s.Incidents, s.Load = printableKeys(s.Refusals), slices.Clone(s.Incidents), slices.Clone(s.Load)
	for i := range s.Incidents {
		x := &s.Incidents[i]
		x.Hop, x.What, x.Endpoint = terminal.Printable(x.Hop), terminal.Printable(x.What),
			terminal.Printable(x.Endpoint)
	}
	for i := range s.Load {
		x := &s.Load[i]
		x.Pool, x.Role = terminal.Printable(x.Pool), Role(terminal.Printable(string(x.Role)))
	}
	s.Classes = slices.Clone(s.Classes)
	for i := range s.Classes {
		s.Classes[i].Name = terminal.Printable(s.Classes[i].Name)
	}
	s.Pools = slices.Clone(s.Pools)
	for i := range s.Pools {
		x := &s.Pools[i]
		x.Name, x.Pickers, x.Groups = terminal.Printable(x.Name), printableKeys(x.Pickers), slices.Clone(x.Groups)
		for k := range x.Groups {
			x.Groups[k].Name = terminal.Printable(x.Groups[k].Name)
		}
	}
	s.Servers = slices.Clone(s.Servers)
	for i := range s.Servers {
		x := &s.Servers[i]
		x.Pool, x.Deployment, x.Accelerator = terminal.Printable(x.Pool), terminal.Printable(x.Deployment),
			terminal.Printable(x.Accelerator)
		if p := x.Price; p != nil {
			x.Price = &PriceTold{p.PerGPUHour, terminal.Printable(p.Source), p.Cost}
		}
	}
	s.Expectations = slices.Clone(s.Expectations)
	for i := range s.Expectations {
		x := &s.Expectations[i]
		x.What, x.Expected, x.Found = terminal.Printable(x.What), terminal.Printable(x.Expected),
			terminal.Printable(x.Found)
	}
	return s
}

func printableAll(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = name(text)
	}
	return out
}

func printableKeys[K ~string, V any](m map[K]V) map[K]V {
	if m == nil {
		return nil
	}
	out := make(map[K]V, len(m))
	for k, v := range m {
		out[K(terminal.Printable(string(k)))] = v
	}
	return out
}
