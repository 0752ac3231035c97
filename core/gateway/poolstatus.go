package gateway

import (
	"fmt"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// The metric families of a model server from which a pool's status is computed.
const (
	waitingRequests = "vllm:num_requests_waiting"
	busyPercent     = "vllm_gpu_utilization_percent"
	queriedTokens   = "vllm:prefix_cache_queries_total"
	cachedTokens    = "vllm:prefix_cache_hits_total"
	answeredTotal   = "vllm:request_success_total"
)

// StatusMetric reports whether a pool's status needs a metric family.
func StatusMetric(name string) bool {
	return slices.Contains([]string{waitingRequests, busyPercent, queriedTokens, cachedTokens, answeredTotal}, name)
}

// PodAnswer holds a pod's answer to the request for its metrics.
type PodAnswer struct {
	// Code is the HTTP status of the answer, or 0 where there was none.
	Code int
	// Page is nil where the answer was not a valid page.
	Page metrics.Page
	// Out says that the gateway has ejected the pod.
	Out bool
}

// Well reports whether the pod counts as available.
func (p *PodAnswer) Well() bool { return p.Code > 0 && p.Code < 500 && !p.Out }

// PoolStatus is the report of document 003's controller about an InferencePool.
type PoolStatus struct {
	Available, Total int
	Ready            Condition
	// Metrics is nil where no pod reported any.
	Metrics *PoolMetrics
}

// PoolMetrics are the fields of document 003's status.metrics, over the available pods.
type PoolMetrics struct {
	QueueLength       float64 `json:"averageQueueLength"`
	GPUUtilization    float64 `json:"averageGPUUtilization"` // percent
	CacheHitRate      float64 `json:"averageCacheHitRate"`   // a share of the tokens looked up so far
	RequestsPerSecond float64 `json:"requestsPerSecond"`     // since the previous scrape
}

// PoolWatch computes a pool's status after each scrape of its pods.
type PoolWatch struct {
	answered float64
	at       machine.Time
	before   bool
}

// Asked takes the answers of all pods at a time.
func (w *PoolWatch) Asked(now machine.Time, pods []PodAnswer) PoolStatus {
	s := PoolStatus{Total: len(pods)}
	sums, pages := map[string]float64{}, 0.0
	for i := range pods {
		if !pods[i].Well() {
			continue
		}
		if s.Available++; pods[i].Page != nil {
			pages++
		}
		for name, family := range pods[i].Page {
			for k := range family.Samples {
				sums[name] += family.Samples[k].Value
			}
		}
	}
	switch {
	case s.Total == 0:
		s.Ready = no("Ready", "NoPods", "the pool has no pods")
	case s.Available < s.Total:
		s.Ready = no("Ready", "PodsNotReady", fmt.Sprintf("%d of %d pods are ready", s.Available, s.Total))
	default:
		s.Ready = yes("Ready", "PodsReady", "all pods are ready")
	}
	rate := 0.0
	if seconds := (now - w.at).Duration().Seconds(); w.before && seconds > 0 {
		rate = max(0, sums[answeredTotal]-w.answered) / seconds // the sum falls where a pod has gone
	}
	*w = PoolWatch{sums[answeredTotal], now, true}
	if pages > 0 {
		hits := 0.0
		if sums[queriedTokens] > 0 {
			hits = sums[cachedTokens] / sums[queriedTokens]
		}
		s.Metrics = &PoolMetrics{cents(sums[waitingRequests] / pages), cents(sums[busyPercent] / pages), cents(hits),
			cents(rate)}
	}
	return s
}

func cents(v float64) float64 { return math.Round(v*100) / 100 }
