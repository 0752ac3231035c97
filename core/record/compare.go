package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
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
	return append(chain(
		At{Client, RequestSent}, At{EPP, RequestReceived}, At{EPP, EndpointPicked}, At{EPP, Part1Sent},
		At{Server, Part1Received}, At{Server, PrefillStarted}, At{Server, PrefillFinished}, At{Server, FirstTokenSent},
		At{EPP, ResponseHeadersSeen}, At{EPP, FirstTokenSeen}, At{EPP, MetadataGenerated}, At{EPP, Part2Sent},
		At{Server, Part2Received}, At{Server, DecodeStarted}, At{Server, LastTokenSent}, At{Client, LastTokenReceived},
	), Edge{At{EPP, FirstTokenSeen}, At{Client, FirstTokenReceived}})
}

// PlainEdges returns the happens-before edges of a request that the EPP forwards whole.
func PlainEdges() []Edge {
	return append(chain(
		At{Client, RequestSent}, At{EPP, RequestReceived}, At{EPP, EndpointPicked}, At{EPP, RequestPassed},
		At{Server, RequestReceived}, At{Server, PrefillStarted}, At{Server, PrefillFinished},
		At{Server, FirstTokenSent}, At{Server, LastTokenSent}, At{Client, LastTokenReceived},
	), Edge{At{Server, FirstTokenSent}, At{Client, FirstTokenReceived}})
}

// DisaggregatedEdges returns the happens-before edges of a request whose prompt is prefilled on one server and decoded
// on another, with connectors that run the two legs one after the other. The Server steps are the prefill server's.
func DisaggregatedEdges() []Edge {
	return append(chain(
		At{Client, RequestSent}, At{EPP, RequestReceived}, At{EPP, EndpointPicked}, At{EPP, RequestPassed},
		At{Sidecar, RequestReceived}, At{Sidecar, PrefillDecided}, At{Sidecar, PrefillLegSent},
		At{Server, RequestReceived}, At{Server, PrefillStarted}, At{Server, PrefillFinished}, At{Server, LastTokenSent},
		At{Sidecar, PrefillLegEnded}, At{Sidecar, DecodeLegSent}, At{Sidecar, ResponseHeadersSeen},
		At{Sidecar, FirstTokenSeen}, At{Sidecar, ResponseEndSeen},
	), Edge{At{Sidecar, ResponseHeadersSeen}, At{Client, FirstTokenReceived}},
		Edge{At{Client, FirstTokenReceived}, At{Client, LastTokenReceived}})
}

func chain(steps ...At) (out []Edge) {
	for i := range steps[1:] {
		out = append(out, Edge{steps[i], steps[i+1]})
	}
	return out
}

// CheckEdges returns an error for the first edge that a request's events break. Both ends must have happened, in that
// order. The events may be in any order; their times decide.
func CheckEdges(events []Event, want []Edge) error {
	first := map[string]map[At]machine.Time{}
	for _, e := range ordered(events) {
		if first[e.Request] == nil {
			first[e.Request] = map[At]machine.Time{}
		}
		if _, ok := first[e.Request][At{e.Hop, e.Step}]; !ok {
			first[e.Request][At{e.Hop, e.Step}] = e.Time
		}
	}
	for _, id := range requests(events) {
		for _, edge := range want {
			for _, at := range []At{edge.Before, edge.After} {
				if _, ok := first[id][at]; !ok {
					return fmt.Errorf("request %s: %v did not happen", id, at)
				}
			}
			if a, b := first[id][edge.Before], first[id][edge.After]; a > b {
				return fmt.Errorf("request %s: %v at %v is not before %v at %v", id, edge.Before, a, edge.After, b)
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
	sa, sb := sequences(a), sequences(b)
	for _, id := range ra {
		for _, hop := range []Hop{Client, Envoy, EPP, Sidecar, Server} {
			x, y := sa[id][hop], sb[id][hop]
			if !slices.Contains(ignore, hop) && !slices.Equal(x, y) {
				return fmt.Errorf("request %s at %s: one record has %v, the other %v", id, hop, x, y)
			}
		}
	}
	return nil
}

func requests(events []Event) []string {
	seen := sequences(events)
	delete(seen, "")
	return slices.Sorted(maps.Keys(seen))
}

// ordered returns the events in the order of their times.
func ordered(events []Event) []Event {
	return slices.SortedStableFunc(slices.Values(events), func(x, y Event) int { return cmp.Compare(x.Time, y.Time) })
}

func sequences(events []Event) map[string]map[Hop][]Step {
	out := map[string]map[Hop][]Step{}
	for _, e := range ordered(events) {
		if out[e.Request] == nil {
			out[e.Request] = map[Hop][]Step{}
		}
		out[e.Request][e.Hop] = append(out[e.Request][e.Hop], e.Step)
	}
	return out
}
