package link

import "math"

// rerate computes max-min fair shares by progressive filling (Bertsekas and
// Gallager, Data Networks, 6.5.2) for all transfers that a chain of common
// links connects with a dirty link.
func (n *Network) rerate() {
	if len(n.dirty) == 0 {
		return
	}
	n.collect()
	n.fill()
	for _, id := range n.someFlows {
		f := &n.flows[id]
		if f.newRate != f.rate || f.slot < 0 {
			n.settle(f)
			f.rate = f.newRate
			n.schedule(id)
		}
	}
}

// collect finds the connected links and transfers.
func (n *Network) collect() {
	n.epoch++
	n.someLinks, n.someFlows, n.capped = n.someLinks[:0], n.someFlows[:0], n.capped[:0]
	visit := func(l LinkID) {
		if w := &n.links[l]; w.epoch != n.epoch {
			w.epoch, w.left, w.open = n.epoch, w.capacity, int32(len(w.flows))
			n.someLinks = append(n.someLinks, l)
		}
	}
	for _, l := range n.dirty {
		visit(l)
	}
	n.dirty = n.dirty[:0]
	for i := 0; i < len(n.someLinks); i++ {
		for _, id := range n.links[n.someLinks[i]].flows {
			f := &n.flows[id]
			if f.epoch == n.epoch {
				continue
			}
			f.epoch, f.assigned = n.epoch, false
			n.someFlows = append(n.someFlows, id)
			if f.limit > 0 {
				n.capped = append(n.capped, id)
			}
			for _, l := range f.start.Legs[f.leg].Path {
				visit(l)
			}
		}
	}
}

// fill gives every collected transfer its new rate.
func (n *Network) fill() {
	links := n.someLinks
	least := n.leastLimit()
	for open := len(n.someFlows); open > 0; {
		tight := (*wire)(nil)
		k := 0
		for _, l := range links {
			w := &n.links[l]
			if w.open == 0 {
				continue // without transfers the link takes no part in the next rounds
			}
			links[k] = l
			k++
			// left/open of two links compared without dividing: capacities are
			// below 2^41 and transfers below 2^16.
			if tight == nil || w.left*int64(tight.open) < tight.left*int64(w.open) {
				tight = w
			}
		}
		links = links[:k]
		share := tight.left / int64(tight.open)
		if least <= share {
			// Those whose own cap is below the tightest share take that; the links
			// then have more for the rest.
			for _, id := range n.capped {
				if f := &n.flows[id]; !f.assigned && f.limit <= share {
					n.assign(f, f.limit)
					open--
				}
			}
			least = n.leastLimit()
			continue
		}
		for _, id := range tight.flows {
			if f := &n.flows[id]; !f.assigned {
				n.assign(f, share)
				open--
			}
		}
	}
}

// leastLimit drops assigned transfers from the capped and finds the lowest cap
// of the rest.
func (n *Network) leastLimit() int64 {
	least, k := int64(math.MaxInt64), 0
	for _, id := range n.capped {
		if f := &n.flows[id]; !f.assigned {
			n.capped[k] = id
			k++
			least = min(least, f.limit)
		}
	}
	n.capped = n.capped[:k]
	return least
}

func (n *Network) assign(f *flow, rate int64) {
	f.assigned, f.newRate = true, rate
	for _, l := range f.start.Legs[f.leg].Path {
		w := &n.links[l]
		w.left -= rate
		w.open--
	}
}
