package flowcontrol

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Shed is admission without flow control. It refuses a request below priority zero when the candidates (the subset, not
// the pool) are saturated. Nil admits the request.
func Shed(priority int, saturation float64) *apierror.Error {
	if priority >= 0 || saturation < 1 {
		return nil
	}
	return &apierror.Error{Status: 429, Message: "system saturated, sheddable request dropped"}
}

// Denied returns the answer for an admitter plug-in's refusal. The real picker wraps every such error as Internal,
// whatever its own code.
func Denied(err error) *apierror.Error {
	return &apierror.Error{Status: 500, Message: "request cannot be admitted: " + err.Error()}
}

// SLOEndpoint is an endpoint as the latency-slo-admitter sees it.
type SLOEndpoint struct {
	KVUsage   float64
	Running   int
	Predicted bool // a latency prediction exists
	MeetsSLO  bool // it meets every objective of the request
}

// AdmitLatencySLO is the latency-slo-admitter. It denies a request below priority zero with an objective (TTFT or TPOT,
// milliseconds, 0 is none) when there are predictions and none meets it, unless an endpoint is idle or so empty (KV
// usage below 2 %) that predictions mean little.
func AdmitLatencySLO(priority int, ttftMs, tpotMs float64, endpoints []SLOEndpoint) error {
	if priority >= 0 || !(ttftMs > 0 || tpotMs > 0) {
		return nil
	}
	predicted := false
	for _, e := range endpoints {
		if e.KVUsage < 0.02 || e.Running == 0 || (e.Predicted && e.MeetsSLO) {
			return nil
		}
		predicted = predicted || e.Predicted
	}
	if !predicted {
		return nil
	}
	return errors.New("no valid endpoint available to serve the request")
}

// Probabilistic is the probabilistic-admitter: the fuller the candidates are, the more requests below priority zero it
// drops.
type Probabilistic struct {
	QueueDepthThreshold  int     `json:"queueDepthThreshold"`
	KVCacheUtilThreshold float64 `json:"kvCacheUtilThreshold"`
	Power                float64 `json:"power"`
	K                    float64 `json:"k"`
}

// DefaultProbabilistic returns the real plug-in's default parameters.
func DefaultProbabilistic() Probabilistic {
	return Probabilistic{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8, Power: 5, K: 300}
}

// Validate returns an error that lists all parameters out of range.
func (p Probabilistic) Validate() error {
	var wrong problems
	wrong.unless(p.QueueDepthThreshold > 0, "queueDepthThreshold must be > 0, got %d", p.QueueDepthThreshold)
	wrong.unless(p.KVCacheUtilThreshold > 0, "kvCacheUtilThreshold must be > 0, got %g", p.KVCacheUtilThreshold)
	wrong.unless(p.Power > 0, "power must be > 0, got %g", p.Power)
	wrong.unless(p.K > 0, "k must be > 0, got %g", p.K)
	if len(wrong) == 0 {
		return nil
	}
	return errors.New("plugin 'probabilistic-admitter': " +
		strings.ReplaceAll(errors.Join(wrong...).Error(), "\n", "; "))
}

// Chance returns the candidates' saturation by the admitter's own thresholds (from the last metrics, however old) and
// the resulting chance, from 0 to 1, of a refusal.
func (p Probabilistic) Chance(loads []Load) (saturation, chance float64) {
	if len(loads) == 0 {
		return 0, 0
	}
	for _, l := range loads {
		saturation += max(float64(l.Waiting)/float64(p.QueueDepthThreshold), float64(l.KVUsage)/p.KVCacheUtilThreshold)
	}
	saturation /= float64(len(loads))
	return saturation, min(math.Pow(saturation, p.Power)*p.K, 1)
}

// Admit decides with a draw from [0, 1). It returns nil or the error that Denied wraps.
func (p Probabilistic) Admit(priority int, loads []Load, draw float64) error {
	if priority >= 0 {
		return nil
	}
	saturation, chance := p.Chance(loads)
	if !(draw < chance) {
		return nil
	}
	return &apierror.Error{Status: 429,
		Message: fmt.Sprintf("probabilistic-admitter: rejected, saturation=%.3f prob=%.2f", saturation, chance)}
}
