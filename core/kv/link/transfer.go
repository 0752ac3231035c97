package link

import (
	"fmt"
	"slices"
)

// startTransfer starts a transfer, or rejects it with a reason.
func (n *Network) startTransfer(s Start, fx *Effects) {
	if reason := n.refuse(&s); reason != "" {
		fx.Add(Effect{Kind: Rejected, ID: s.ID, At: n.now, Reason: reason})
		return
	}
	var id int32
	if k := len(n.free); k > 0 {
		id, n.free = n.free[k-1], n.free[:k-1]
	} else {
		id = int32(len(n.flows))
		n.flows = append(n.flows, flow{})
	}
	n.seq++
	n.flows[id] = flow{start: s, seq: n.seq, usable: -1}
	n.byID[s.ID] = id
	if s.Serial != 0 {
		n.serial[s.Serial] = append(n.serial[s.Serial], id)
		if len(n.serial[s.Serial]) > 1 {
			return
		}
	}
	n.startLeg(id, 0, fx)
}

func (n *Network) refuse(s *Start) string {
	if _, known := n.byID[s.ID]; known {
		return fmt.Sprintf("transfer %d is already under way", s.ID)
	}
	switch {
	case len(n.byID) >= MaxTransfers:
		return fmt.Sprintf("there are already %d transfers", MaxTransfers)
	case s.Bytes < 0 || s.Bytes > MaxBytes:
		return fmt.Sprintf("%d bytes; expected 0 to %d", s.Bytes, int64(MaxBytes))
	case s.UsableBytes < 0 || s.UsableBytes > s.Bytes:
		return fmt.Sprintf("usable after %d bytes; expected 0 to %d", s.UsableBytes, s.Bytes)
	case len(s.Legs) == 0 || len(s.Legs) > MaxLegs:
		return fmt.Sprintf("%d legs; expected 1 to %d", len(s.Legs), MaxLegs)
	}
	for i, leg := range s.Legs {
		if len(leg.Path) > MaxHops {
			return fmt.Sprintf("leg %d has %d hops; expected at most %d", i, len(leg.Path), MaxHops)
		}
		if leg.Delay < 0 || leg.Delay > maxDelay {
			return fmt.Sprintf("leg %d is delayed by %s; expected 0 to 1h", i, leg.Delay)
		}
		if leg.BytesPerSecond != 0 && (leg.BytesPerSecond < MinBandwidth || leg.BytesPerSecond > MaxBandwidth) {
			return fmt.Sprintf("leg %d is capped at %d bytes/s; expected 0 or %g to %g", i, leg.BytesPerSecond,
				float64(MinBandwidth), float64(MaxBandwidth))
		}
		for j, l := range leg.Path {
			if l < 0 || int(l) >= len(n.links) {
				return fmt.Sprintf("leg %d names link %d; there are %d", i, l, len(n.links))
			}
			if slices.Contains(leg.Path[:j], l) {
				return fmt.Sprintf("leg %d crosses %q twice", i, n.links[l].Name)
			}
		}
	}
	return ""
}

// startLeg lets a leg's delay run.
func (n *Network) startLeg(id int32, leg int, fx *Effects) {
	f := &n.flows[id]
	f.leg, f.phase = leg, delayed
	f.left = f.start.Bytes << unitShift
	f.limit = units(f.start.Legs[leg].BytesPerSecond)
	if leg == len(f.start.Legs)-1 && f.start.UsableBytes > 0 {
		f.usable = (f.start.Bytes - f.start.UsableBytes) << unitShift
	}
	at := n.now.Add(f.start.Legs[leg].Delay)
	n.due(id, at)
	if at == n.now {
		n.step(id, fx)
	}
}

// legDone is called when a leg's last byte has arrived.
func (n *Network) legDone(id int32, fx *Effects) {
	f := &n.flows[id]
	if f.leg < len(f.start.Legs)-1 {
		n.leave(id)
		n.heap.Remove(&n.flows[id].slot)
		n.startLeg(id, f.leg+1, fx)
		return
	}
	f.left = 0
	if f.usable >= 0 {
		f.usable = -1
		n.emit(fx, Usable, f)
	}
	n.end(id, Arrived, fx)
}

// leave takes a moving transfer off its links.
func (n *Network) leave(id int32) {
	f := &n.flows[id]
	if f.phase != moving {
		return
	}
	moved := uint64(f.start.Bytes<<unitShift-f.left) >> unitShift
	for hop, l := range f.start.Legs[f.leg].Path {
		w := &n.links[l]
		last := int32(len(w.flows) - 1)
		if at := f.at[hop]; at != last {
			other := w.flows[last]
			w.flows[at] = other
			o := &n.flows[other]
			o.at[slices.Index(o.start.Legs[o.leg].Path, l)] = at
		}
		w.flows = w.flows[:last]
		w.carried += moved
		n.dirty = append(n.dirty, l)
	}
}

// end removes a transfer and lets the next of its queue begin.
func (n *Network) end(id int32, k Kind, fx *Effects) {
	f := &n.flows[id]
	if f.phase == moving {
		n.settle(f)
	}
	n.emit(fx, k, f)
	n.leave(id)
	n.heap.Remove(&n.flows[id].slot)
	delete(n.byID, f.start.ID)
	serial := f.start.Serial
	*f = flow{}
	n.free = append(n.free, id)
	if serial == 0 {
		return
	}
	queue := n.serial[serial]
	first := queue[0] == id
	at := slices.Index(queue, id)
	queue = slices.Delete(queue, at, at+1)
	if len(queue) == 0 {
		delete(n.serial, serial)
		return
	}
	n.serial[serial] = queue
	if first {
		n.startLeg(queue[0], 0, fx)
	}
}
