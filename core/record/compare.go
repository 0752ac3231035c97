package record

import (
	"fmt"
	"slices"
)

// At names a step at a hop.
type At struct {
	Hop  Hop
	Step Step
}

func (a At) String() string { return string(a.Hop) + " " + string(a.Step) }

// Edge states that Before happens before After within one attempt.
type Edge struct{ Before, After At }

// HeldEdges returns the happens-before edges of the held-open request (document 000). A hop sends something before the
// next hop receives it.
func HeldEdges() []Edge {
	return chain(
		At{Client, RequestSent}, At{EPP, RequestReceived}, At{EPP, EndpointPicked}, At{EPP, Part1Sent},
		At{Server, Part1Received}, At{Server, PrefillStarted}, At{Server, PrefillFinished}, At{Server, FirstTokenSent},
		At{EPP, ResponseHeadersSeen}, At{EPP, FirstTokenSeen}, At{EPP, MetadataGenerated}, At{EPP, Part2Sent},
		At{Server, Part2Received}, At{Server, DecodeStarted}, At{Server, LastTokenSent}, At{Client, LastTokenReceived},
	).with(Edge{At{EPP, FirstTokenSeen}, At{Client, FirstTokenReceived}})
}

// PlainEdges returns the happens-before edges of a request that the EPP forwards whole.
func PlainEdges() []Edge {
	return chain(
		At{Client, RequestSent}, At{EPP, RequestReceived}, At{EPP, EndpointPicked}, At{EPP, RequestPassed},
		At{Server, RequestReceived}, At{Server, PrefillStarted}, At{Server, PrefillFinished},
		At{Server, FirstTokenSent},
		At{Server, LastTokenSent}, At{Client, LastTokenReceived},
	).with(Edge{At{Server, FirstTokenSent}, At{Client, FirstTokenReceived}})
}

// DisaggregatedEdges returns the happens-before edges of a request whose prompt is prefilled on one server and decoded
// on another, with connectors that run the two legs one after the other. The Server steps are the prefill server's.
func DisaggregatedEdges() []Edge {
	return chain(
		At{Client, RequestSent}, At{EPP, RequestReceived}, At{EPP, EndpointPicked}, At{EPP, RequestPassed},
		At{Sidecar, RequestReceived}, At{Sidecar, PrefillDecided}, At{Sidecar, PrefillLegSent},
		At{Server, RequestReceived}, At{Server, PrefillStarted}, At{Server, PrefillFinished}, At{Server, LastTokenSent},
		At{Sidecar, PrefillLegEnded}, At{Sidecar, DecodeLegSent}, At{Sidecar, ResponseHeadersSeen},
		At{Sidecar, FirstTokenSeen},
		At{Sidecar, ResponseEndSeen},
	).with(Edge{At{Sidecar, ResponseHeadersSeen}, At{Client, FirstTokenReceived}},
		Edge{At{Client, FirstTokenReceived}, At{Client, LastTokenReceived}})
}

type edges []Edge

func chain(steps ...At) edges {
	var out edges
	for i := 1; i < len(steps); i++ {
		out = append(out, Edge{steps[i-1], steps[i]})
	}
	return out
}

func (e edges) with(more ...Edge) []Edge { return append(e, more...) }

// CheckEdges returns an error for the first edge that a request's events break. Both ends must have happened, in that
// order. The events may be in any order; their times decide.
func CheckEdges(events []Event, want []Edge) error {
	first := map[string]map[At]Event{}
	for _, e := range events {
		if first[e.Request] == nil {
			first[e.Request] = map[At]Event{}
		}
		at := At{e.Hop, e.Step}
		if old, ok := first[e.Request][at]; !ok || e.Time < old.Time {
			first[e.Request][at] = e
		}
	}
	for _, id := range requests(events) {
		for _, edge := range want {
			a, okA := first[id][edge.Before]
			b, okB := first[id][edge.After]
			switch {
			case !okA:
				return fmt.Errorf("request %s: %v did not happen", id, edge.Before)
			case !okB:
				return fmt.Errorf("request %s: %v did not happen", id, edge.After)
			case a.Time > b.Time:
				return fmt.Errorf("request %s: %v at %v is not before %v at %v", id, edge.Before, a.Time, edge.After,
					b.Time)
			}
		}
	}
	return nil
}

// Same returns an error for the first difference between two records of one scenario, for instance a live and a virtual
// one. Both must have the same requests and, for each hop of each request, the same steps in the same order. Times and
// details may differ. Same skips the hops in ignore (Envoy's own log exists only live).
func Same(a, b []Event, ignore ...Hop) error {
	ra, rb := requests(a), requests(b)
	if !slices.Equal(ra, rb) {
		return fmt.Errorf("the records have different requests: %v and %v", ra, rb)
	}
	sa, sb := sequences(a, ignore), sequences(b, ignore)
	for _, id := range ra {
		for _, hop := range []Hop{Client, Envoy, EPP, Sidecar, Server} {
			x, y := sa[id][hop], sb[id][hop]
			if !slices.Equal(x, y) {
				return fmt.Errorf("request %s at %s: one record has %v, the other %v", id, hop, x, y)
			}
		}
	}
	return nil
}

func requests(events []Event) []string {
	var ids []string
	seen := map[string]bool{}
	for _, e := range events {
		if !seen[e.Request] && e.Request != "" {
			seen[e.Request] = true
			ids = append(ids, e.Request)
		}
	}
	slices.Sort(ids)
	return ids
}

func sequences(events []Event, ignore []Hop) map[string]map[Hop][]Step {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(x, y Event) int {
		switch {
		case x.Time < y.Time:
			return -1
		case x.Time > y.Time:
			return 1
		}
		return 0
	})
	out := map[string]map[Hop][]Step{}
	for _, e := range sorted {
		if slices.Contains(ignore, e.Hop) {
			continue
		}
		if out[e.Request] == nil {
			out[e.Request] = map[Hop][]Step{}
		}
		out[e.Request][e.Hop] = append(out[e.Request][e.Hop], e.Step)
	}
	return out
}
