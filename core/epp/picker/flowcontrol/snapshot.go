package flowcontrol

import (
	"cmp"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Snapshot is the state for gauges and debug pages. The names in comments are the metrics' (prefix llm_d_epp_).
type Snapshot struct {
	Saturation     float64 // flow_control_pool_saturation
	StaleEndpoints int     // flow_control_stale_endpoints; 0 for the concurrency-detector
	Queued         int64
	QueuedBytes    int64
	Running        int
	Bands          []BandSnapshot // highest priority first

	ReclaimTarget   float64       // flow_control_reclaim_target
	PendingReclaim  float64       // flow_control_pending_reclaim
	RevocationsFor  map[int]int64 // flow_control_revocations_issued_total by priority
	Revoked         int64         // flow_control_revocations_total{outcome="confirmed"}
	RevokedTimedOut int64         // the same, timed out

	Programs      []ProgramStats // of the program-aware-fairness instances, by name and id
	FairnessIndex float64        // program_aware_jains_fairness_index of the last of them; 1 without any
}

// BandSnapshot is one priority band.
type BandSnapshot struct {
	Priority        int
	Ceiling         float64
	Requests, Bytes int64
	MaxRequests     int64
	MaxBytes        int64
	Flows           []FlowSnapshot // by fairness id, including idle ones
}

// FlowSnapshot has flow_control_queue_size and flow_control_queue_bytes of one flow.
type FlowSnapshot struct {
	FairnessID      string
	Requests, Bytes int64
}

// Snapshot returns the state at a time not before the machine's own, without changing the machine.
func (c *Controller) Snapshot(now machine.Time) Snapshot {
	now = max(now, c.Now)
	r := &c.reclaim
	s := Snapshot{
		Saturation: c.pool.at(now), Queued: c.queued, QueuedBytes: c.queuedBytes, Running: r.Running,
		ReclaimTarget: r.Target, Revoked: r.Confirmed, RevokedTimedOut: r.TimedOut,
		RevocationsFor: maps.Clone(r.Issued), FairnessIndex: 1,
	}
	if c.cfg.Detector.Kind == UtilizationDetectorType {
		s.StaleEndpoints = c.cfg.Detector.Utilization.StaleEndpoints(c.pool.loads, now)
	}
	for _, it := range r.outstanding {
		s.PendingReclaim += it.Credit
	}
	for _, d := range r.Cooling {
		if now < d.Expires {
			s.PendingReclaim += d.Credit
		}
	}
	for i, b := range c.bands {
		bs := BandSnapshot{
			Priority: b.Priority, Ceiling: c.gateOf(i, s.Saturation).ceiling,
			Requests: b.requests, Bytes: b.bytes, MaxRequests: b.MaxRequests, MaxBytes: b.MaxBytes,
		}
		for _, f := range b.flows {
			bs.Flows = append(bs.Flows, FlowSnapshot{f.id, int64(f.items.Len()), f.bytes})
		}
		machine.SortFunc(bs.Flows, func(x, y FlowSnapshot) int { return cmp.Compare(x.FairnessID, y.FairnessID) })
		s.Bands = append(s.Bands, bs)
	}
	for _, name := range slices.Sorted(maps.Keys(c.programs)) {
		list, index := c.programs[name].stats()
		s.Programs = append(s.Programs, list...)
		s.FairnessIndex = index
	}
	return s
}
