package plugins

import (
	"encoding/json"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/machine"
)

// health is health-data-source. The real EPP lacks it, since Kubernetes reports which pods are ready. It requests a
// page of each endpoint as a readiness probe does and screens out those that failed failureThreshold times in a row. An
// endpoint is ready from the beginning, and again after one success.
type health struct {
	named
	Path      string          `json:"path"`
	Interval  config.Duration `json:"interval" above:"0s"`
	Timeout   config.Duration `json:"timeout" above:"0s"`
	Threshold int             `json:"failureThreshold" min:"1"`

	failures []int // in a row, by slot
}

var newHealth = picker.Of(health{Path: "/health", Interval: config.Duration(500 * machine.Millisecond),
	Timeout: config.Duration(5 * machine.Second), Threshold: 3})

// Scrape returns how to probe.
func (h *health) Scrape() picker.ScrapeSpec {
	return picker.ScrapeSpec{Scheme: "http", Path: h.Path, Interval: h.Interval.Time(), Timeout: h.Timeout.Time(),
		InsecureSkipVerify: true}
}

// Probed counts failures.
func (h *health) Probed(slot int, err error) {
	n := picker.AtSlot(&h.failures, slot)
	if *n++; err == nil {
		*n = 0
	}
}

// EndpointGone forgets what the slot's endpoint did: under the same name another
// one may come.
func (h *health) EndpointGone(slot int, _ bool) {
	if slot < len(h.failures) {
		h.failures[slot] = 0
	}
}

// Screen keeps endpoints that are ready.
func (h *health) Screen(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool {
		slot := c.State(i).Slot()
		return slot >= len(h.failures) || h.failures[slot] < h.Threshold
	})
}

// Why implements picker.Reasoner.
func (h *health) Why(*picker.Decision, int32) string { return "is not ready" }

// readyFilter is ready-filter (document 002, chapter 10): only endpoints that are ready. An endpoint that announces
// nothing counts as ready.
type readyFilter struct{ named }

// Filter keeps ready endpoints.
func (f *readyFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool { s := c.State(i).Announced; return s == nil || s.Ready })
}

// Why implements picker.Reasoner.
func (f *readyFilter) Why(*picker.Decision, int32) string { return "is not ready" }

// SaveState copies who failed how often.
func (h *health) SaveState() any { return slices.Clone(h.failures) }

// LoadState implements picker.StateKeeper.
func (h *health) LoadState(text []byte) error { return json.Unmarshal(text, &h.failures) }
