package flowcontrol

import (
	"errors"
	"fmt"
	"math"

	"github.com/windtunnel/windtunnel/core/machine"
)

// The saturation detectors, by their plug-in types.
const (
	UtilizationDetectorType = "utilization-detector"
	ConcurrencyDetectorType = "concurrency-detector"
)

// Load is an endpoint's load as a detector sees it.
type Load struct {
	// Waiting and KVUsage come from the endpoint's metrics page: queued requests, and used KV cache from 0 to 1.
	Waiting int           `json:"waiting,omitempty"`
	KVUsage machine.Float `json:"kvUsage,omitempty"`

	// Scraped is true once such a page was read; UpdatedAt is the time of the last good one.
	Scraped   bool         `json:"scraped,omitempty"`
	UpdatedAt machine.Time `json:"updatedAt,omitempty"`

	// Requests and Tokens are the picker's own count of what it placed on the endpoint and what has not ended.
	Requests int64 `json:"requests,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
}

// Detector is a chosen saturation detector with its parameters.
type Detector struct {
	Kind        string // UtilizationDetectorType or ConcurrencyDetectorType
	Utilization Utilization
	Concurrency Concurrency
}

// Validate returns an error for parameters of the chosen detector that are out of range.
func (d Detector) Validate() error {
	switch d.Kind {
	case UtilizationDetectorType:
		return d.Utilization.Validate()
	case ConcurrencyDetectorType:
		return d.Concurrency.Validate()
	}
	return fmt.Errorf("unknown saturation detector %q: use %s or %s", d.Kind, UtilizationDetectorType,
		ConcurrencyDetectorType)
}

// Saturation returns the saturation of the given endpoints; 1 or more is full.
func (d Detector) Saturation(loads []Load, now machine.Time) float64 {
	if d.Kind == ConcurrencyDetectorType {
		return d.Concurrency.Saturation(loads)
	}
	return d.Utilization.Saturation(loads, now)
}

// Utilization is the utilization-detector. An endpoint is as full as the fuller of its queue and its KV cache; the
// pool's saturation is the mean.
type Utilization struct {
	QueueDepthThreshold       int          `json:"queueDepthThreshold"`
	KVCacheUtilThreshold      float64      `json:"kvCacheUtilThreshold"`
	MetricsStalenessThreshold machine.Time `json:"metricsStalenessThreshold"`
	Headroom                  float64      `json:"headroom"` // only widens Keep, never Saturation
}

// DefaultUtilization returns the real plug-in's default parameters.
func DefaultUtilization() Utilization {
	return Utilization{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8,
		MetricsStalenessThreshold: 200 * machine.Millisecond}
}

// Validate returns an error that lists all parameters out of range, in the real plug-in's words.
func (u Utilization) Validate() error {
	var errs problems
	errs.unless(u.QueueDepthThreshold > 0, "queueDepthThreshold must be strictly positive, got %d",
		u.QueueDepthThreshold)
	errs.unless(u.KVCacheUtilThreshold > 0 && u.KVCacheUtilThreshold <= 1,
		"kvCacheUtilThreshold must be in (0.0, 1.0], got %f", u.KVCacheUtilThreshold)
	errs.unless(u.MetricsStalenessThreshold > 0, "metricsStalenessThreshold must be strictly positive, got %v",
		u.MetricsStalenessThreshold.Duration())
	errs.unless(u.Headroom >= 0, "headroom must be a non-negative value, got %f", u.Headroom)
	return errs.under("invalid utilization detector configuration")
}

// Stale reports whether an endpoint's metrics are missing or too old to use.
func (u Utilization) Stale(l Load, now machine.Time) bool {
	return !l.Scraped || now-l.UpdatedAt > u.MetricsStalenessThreshold || math.IsNaN(float64(l.KVUsage))
}

// Score returns how full one endpoint is: 1 at either threshold, and 1 with stale metrics.
func (u Utilization) Score(l Load, now machine.Time) float64 {
	if u.Stale(l, now) {
		return 1
	}
	return max(float64(l.Waiting)/float64(u.QueueDepthThreshold), float64(l.KVUsage)/u.KVCacheUtilThreshold)
}

// Saturation returns the mean score; 1 for a pool without endpoints.
func (u Utilization) Saturation(loads []Load, now machine.Time) float64 {
	if len(loads) == 0 {
		return 1
	}
	total := 0.0
	for i := range loads {
		total += u.Score(loads[i], now)
	}
	return total / float64(len(loads))
}

// StaleEndpoints counts the endpoints with stale metrics, whose score is 1.
func (u Utilization) StaleEndpoints(loads []Load, now machine.Time) int {
	n := 0
	for i := range loads {
		if u.Stale(loads[i], now) {
			n++
		}
	}
	return n
}

// Keep is the detector as a filter: it reports whether an endpoint is below both thresholds, widened by the headroom.
// If a filter would remove every endpoint, the caller must keep all.
func (u Utilization) Keep(l Load, now machine.Time) bool {
	return !u.Stale(l, now) &&
		float64(l.Waiting) < float64(u.QueueDepthThreshold)*(1+u.Headroom) &&
		float64(l.KVUsage) < u.KVCacheUtilThreshold*(1+u.Headroom)
}

// The concurrency-detector's modes.
const (
	ModeRequests = "requests"
	ModeTokens   = "tokens"
	ModeHybrid   = "hybrid" // the fuller of the two
)

// Concurrency is the concurrency-detector: the picker's requests in flight relative to the pool's limit.
type Concurrency struct {
	Mode                string  `json:"concurrencyMode"`     // ModeRequests, ModeTokens or ModeHybrid
	MaxConcurrency      int64   `json:"maxConcurrency"`      // requests per endpoint
	MaxTokenConcurrency int64   `json:"maxTokenConcurrency"` // tokens per endpoint
	Headroom            float64 `json:"headroom"`
}

// DefaultConcurrency returns the real plug-in's default parameters.
func DefaultConcurrency() Concurrency {
	return Concurrency{Mode: ModeRequests, MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000}
}

// Validate returns an error that lists all parameters out of range, in the real plug-in's words.
func (c Concurrency) Validate() error {
	var errs problems
	errs.unless(c.MaxConcurrency > 0, "maxConcurrency must be strictly positive, got %d", c.MaxConcurrency)
	errs.unless(c.Headroom >= 0, "headroom must be a non-negative value, got %f", c.Headroom)
	errs.unless(c.MaxTokenConcurrency > 0, "maxTokenConcurrency must be strictly positive, got %d",
		c.MaxTokenConcurrency)
	errs.unless(c.Mode == ModeRequests || c.Mode == ModeTokens || c.Mode == ModeHybrid,
		"unsupported concurrencyMode: %q", c.Mode)
	return errs.under("invalid concurrency detector configuration")
}

// Saturation returns the load in flight divided by the limit; 1 for a pool without endpoints.
func (c Concurrency) Saturation(loads []Load) float64 {
	var requests, tokens int64
	for i := range loads {
		requests += loads[i].Requests
		tokens += loads[i].Tokens
	}
	return c.of(requests, tokens, len(loads))
}

func (c Concurrency) of(requests, tokens int64, endpoints int) float64 {
	if endpoints == 0 {
		return 1
	}
	byRequests := float64(requests) / float64(int64(endpoints)*c.MaxConcurrency)
	byTokens := float64(tokens) / float64(int64(endpoints)*c.MaxTokenConcurrency)
	switch c.Mode {
	case ModeTokens:
		return byTokens
	case ModeHybrid:
		return max(byRequests, byTokens)
	}
	return byRequests
}

// Keep is the detector as a filter. Unlike with the utilization-detector, the filter may remove every endpoint.
func (c Concurrency) Keep(l Load) bool {
	requests := l.Requests < int64(float64(c.MaxConcurrency)*(1+c.Headroom))
	tokens := l.Tokens < int64(float64(c.MaxTokenConcurrency)*(1+c.Headroom))
	switch c.Mode {
	case ModeTokens:
		return tokens
	case ModeHybrid:
		return requests && tokens
	}
	return requests
}

// problems lists mistakes in parameters.
type problems []error

// unless adds a problem if ok is false.
func (p *problems) unless(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// under returns the problems as one error with a prefix, nil if there are none.
func (p problems) under(prefix string) error {
	if len(p) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", prefix, errors.Join(p...))
}
