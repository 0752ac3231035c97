// Package link moves KV caches between model servers over wires that they share.
//
// A Network is a machine (see core/machine): links with a bandwidth each, and transfers that run over paths of links.
// At every moment each transfer gets its max-min fair share: the tightest link is divided evenly among the transfers
// that cross it, and the others share the rest of the other links. The network recomputes shares whenever a transfer
// begins, ends or is cancelled and whenever a link changes, but only of transfers that a chain of common links connects
// with the change.
//
//	n, err := link.New(topology.Links())
//	var fx link.Effects
//	n.Input(now, link.Start{ID: 7, Bytes: 671_088_640, Legs: legs}, &fx)
//	at, ok := n.Next()
//	n.Advance(at, &fx) // fx.List: Arrived{7} when it is due
//
// Accounting is exact: the rest of a transfer is an integer count of 2^-24 bytes, and rates are such units per
// nanosecond, rounded down. Cutting a span in two moves the same bytes, links are never overfull, and live and virtual
// time see the same arrivals.
//
// Topology lays out nodes, racks and a store; Profile describes how a connector transfers (NIXL v2 and v1, plain TCP,
// LMCache).
package link
