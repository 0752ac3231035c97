package plugins

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// The plug-ins of document 003 that have no equal today, and the older forms
// of those that have.

func profileFailed(name string) error {
	return fmt.Errorf("failed to run scheduler profile '%s'", name)
}

// weightedLoad is LoadAwareScorer with document 003's arguments:
// queueLengthWeight*(1 - queue/maxQueueLength) + gpuUtilWeight*(1 - gpu), over
// the sum of the weights. gpu is the custom metric gpu_utilization (0..1 or
// percent), else the KV-cache usage.
type weightedLoad struct {
	named
	QueueWeight float64 `json:"queueLengthWeight" min:"0"`
	GPUWeight   float64 `json:"gpuUtilWeight" min:"0"`
	MaxQueue    float64 `json:"maxQueueLength" above:"0"`
	Threshold   float64 `json:"threshold"` // another name of maxQueueLength
}

func newWeightedLoad(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &weightedLoad{named: base("weighted-load-scorer", name), QueueWeight: .6, GPUWeight: .4, MaxQueue: 10}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	if s.Threshold > 0 {
		s.MaxQueue = s.Threshold
	}
	if s.QueueWeight+s.GPUWeight == 0 {
		return nil, p.Errorf("queueLengthWeight and gpuUtilWeight are both zero")
	}
	return s, nil
}

// Score prefers short queues and idle accelerators.
func (s *weightedLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	sum := s.QueueWeight + s.GPUWeight
	for j, i := range in {
		st := c.State(i)
		q := 1 - math.Min(1, math.Max(0, float64(st.Waiting)/s.MaxQueue))
		scores[j] = (float64(s.QueueWeight*q) + float64(s.GPUWeight*(1-gpu(st)))) / sum
	}
}

func gpu(s *picker.State) float64 {
	v, ok := s.Custom[FigureGPU]
	if !ok {
		v = s.KVUsage
	} else if v > 1 {
		v /= 100
	}
	return math.Max(0, math.Min(1, v))
}

// thresholdPrefix is PrecisePrefixCacheScorer with document 003's arguments:
// the share of the prompt's first maxPrefixLength tokens that an endpoint
// holds; below cacheHitThreshold it counts as nothing.
//
// Where a KVCacheMetricScraper with cachePrefixTracking tells how many blocks
// an endpoint can find by hash, no more than these count, so that an engine
// that restarted or reset its cache loses what the index still believes.
type thresholdPrefix struct {
	named
	HitThreshold float64 `json:"cacheHitThreshold" min:"0" max:"1"`
	MaxPrefix    int     `json:"maxPrefixLength" min:"0"`

	source prefixSource
}

func newThresholdPrefix(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &thresholdPrefix{named: base("threshold-prefix-scorer", name)}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	findPrefix(b, "", name, &s.source)
	return s, nil
}

// Score prefers endpoints that hold enough of the prompt.
func (s *thresholdPrefix) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.match(c)
	total := m.total
	if s.MaxPrefix > 0 && m.blockTokens > 0 {
		total = min(total, max(1, s.MaxPrefix/m.blockTokens))
	}
	if total == 0 {
		return
	}
	for j, i := range in {
		st := c.State(i)
		share := math.Min(1, min(float64(m.of(st)), findable(st, m.blockTokens))/float64(total))
		if share >= s.HitThreshold {
			scores[j] = share
		}
	}
}

// findable is how many of the index's blocks an endpoint can hold at all, going
// by what it says itself.
func findable(s *picker.State, blockTokens int) float64 {
	n, ok := s.Custom[FigureHashes]
	if !ok {
		return math.Inf(1)
	}
	size := float64(blockTokens)
	if s.CacheBlockSize > 0 {
		size = float64(s.CacheBlockSize)
	}
	return math.Max(0, math.Floor(n*size/float64(blockTokens)))
}

// dynamicRouting is document 003's "dynamic routing": as a filter its three
// gates (queue below maxQueueLength, more than minCacheHit of the prompt
// cached, p99 below maxLatencyMs; all endpoints when none passes), as a scorer
// 0.5 cache + 0.3 load + 0.2 latency.
type dynamicRouting struct {
	named
	MaxQueue    int64   `json:"maxQueueLength" above:"0"`
	MinCacheHit float64 `json:"minCacheHit"`
	MaxLatency  float64 `json:"maxLatencyMs" above:"0"`

	source prefixSource
}

func newDynamicRouting(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &dynamicRouting{named: base("dynamic-routing", name), MaxQueue: 10, MinCacheHit: .5, MaxLatency: 500}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	findPrefix(b, "", name, &s.source)
	return s, nil
}

// p99 is the endpoint's 99th percentile of latency in milliseconds, 0 when
// unknown.
func p99(s *picker.State) float64 { return math.Max(0, 1000*s.Custom[FigureP99]) }

// Why names the gates that the endpoint did not pass.
func (s *dynamicRouting) Why(d *picker.Decision, i int32) string {
	st := &d.View.States[i]
	var why []string
	if st.Waiting >= s.MaxQueue {
		why = append(why, fmt.Sprintf("%d wait", st.Waiting))
	}
	if m := picker.Peek[prefixMatch](d, s.source); m != nil && m.ratio(st) <= s.MinCacheHit {
		why = append(why, fmt.Sprintf("%.0f %% of the prompt is cached", 100*m.ratio(st)))
	}
	if p99(st) >= s.MaxLatency {
		why = append(why, fmt.Sprintf("p99 is %.0f ms", p99(st)))
	}
	return strings.Join(why, ", ")
}

// Filter keeps endpoints that pass all gates.
func (s *dynamicRouting) Filter(c *picker.Cycle, in []int32) []int32 {
	m := s.source.match(c)
	return keepOr(in, func(i int32) bool {
		st := c.State(i)
		return st.Waiting < s.MaxQueue && m.ratio(st) > s.MinCacheHit && p99(st) < s.MaxLatency
	}, true)
}

// Score is the document's formula.
func (s *dynamicRouting) Score(c *picker.Cycle, in []int32, scores []float64) {
	m := s.source.match(c)
	for j, i := range in {
		st := c.State(i)
		load := 1 - math.Min(1, math.Max(0, float64(st.Waiting)/float64(s.MaxQueue)))
		latency := 1 - math.Min(1, p99(st)/s.MaxLatency)
		scores[j] = float64(.5*m.ratio(st)) + float64(.3*load) + float64(.2*latency)
	}
}

// kvManager is KVCacheManagerScorer: it asks the KV-cache manager (POST
// /api/v1/score) which share of the prompt each endpoint holds. Without an
// answer in time, or below cache_threshold, an endpoint scores 0.
type kvManager struct {
	named
	Endpoint  string          `json:"endpoint"`
	Timeout   config.Duration `json:"timeout" above:"0s"`
	Threshold float64         `json:"cache_threshold" min:"0" max:"1"`
}

func newKVManager(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &kvManager{named: base("kv-cache-manager-scorer", name), Timeout: config.Duration(50 * machine.Millisecond), Threshold: .5}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, p.At("endpoint").Expected("the KV-cache manager's URL, such as http://127.0.0.1:8080")
	}
	s.Endpoint = strings.TrimSuffix(s.Endpoint, "/")
	return s, nil
}

// maxAsked is how much of a prompt the manager is sent, in bytes.
const maxAsked = 1 << 20

// KeyKVScore is the key of a KVCacheManagerScorer's question. Its answer is the
// manager's to POST /api/v1/score.
const KeyKVScore = "score"

// Needs asks the manager.
func (s *kvManager) Needs(_ machine.Time, r *picker.Request, v *picker.View) []picker.Need {
	if r.Body == nil || len(r.Body.Prompts) == 0 {
		return nil
	}
	names := make([]string, 0, len(v.States))
	for i := range v.States {
		names = append(names, v.States[i].Name)
	}
	body := func() ([]byte, error) {
		ask := map[string]any{"candidate_pods": names, "model": r.TargetModel}
		if p := &r.Body.Prompts[0]; p.IsTokens() {
			ask["prompt"] = p.Tokens()
		} else {
			ask["prompt"] = string(p.Text()[:min(p.Length(), maxAsked)])
		}
		if r.Body.Kind == parse.Chat { // the text alone is not what the engine tokenises
			var chat struct {
				Messages json.RawMessage `json:"messages"`
			}
			if json.Unmarshal(r.Body.Raw(), &chat) == nil && len(chat.Messages) <= maxAsked {
				ask["messages"] = chat.Messages
			}
		}
		if r.Body.CacheSalt != "" {
			ask["cache_salt"] = r.Body.CacheSalt
		}
		return json.Marshal(ask)
	}
	return []picker.Need{{Plugin: s.Name(), Key: KeyKVScore, Method: "POST", URL: s.Endpoint + "/api/v1/score", Timeout: s.Timeout.Time(), Body: body}}
}

type kvAnswer struct {
	Scores map[string]struct {
		HitRate float64 `json:"cache_hit_rate"`
		Score   float64 `json:"score"`
	} `json:"scores"`
}

// Score reads the answer.
func (s *kvManager) Score(c *picker.Cycle, in []int32, scores []float64) {
	a := c.Answer(s, KeyKVScore)
	var got kvAnswer
	if a == nil || a.Err != nil || json.Unmarshal(a.Value, &got) != nil {
		return
	}
	for j, i := range in {
		if x, ok := got.Scores[c.State(i).Name]; ok && x.HitRate >= s.Threshold {
			scores[j] = x.HitRate
		}
	}
}

// sessionSticky is SessionAffinity with document 003's arguments: the endpoint
// of the session for ttl; stickiness high is 1, medium .6, low .3.
type sessionSticky struct {
	sessionScorer
	stick        float64
	hits, misses int64
}

func newSessionSticky(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	ps := struct {
		TTL        config.Duration `json:"ttl" above:"0s"`
		Stickiness string          `json:"stickiness" oneof:"high,medium,low"`
	}{config.Duration(300 * machine.Second), "high"}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	stick := map[string]float64{"high": 1, "medium": .6, "low": .3}[ps.Stickiness]
	s := &sessionSticky{sessionScorer: sessionScorer{named: base("session-sticky-scorer", name)}, stick: stick}
	s.Strategy, s.ttl, s.bindings = strategySessionID, ps.TTL.Time(), map[string]binding{}
	s.sweep = machine.Second
	return s, nil
}

// Score prefers the session's endpoint.
func (s *sessionSticky) Score(c *picker.Cycle, in []int32, scores []float64) {
	pinned := s.choose(c, s, in)
	for j, i := range in {
		if i == pinned {
			scores[j] = s.stick
		}
	}
}

// Commit remembers the session.
func (s *sessionSticky) Commit(now machine.Time, d *picker.Decision) {
	if id := s.sessionID(d.Request); id != "" {
		was, bound := s.bound(now, id)
		if r := d.PrimaryProfile(); bound && r.Ok() && d.View.States[r.Picked[0]].ID() == was.endpoint {
			s.hits++
		} else {
			s.misses++
		}
	}
	s.commit(now, d, s)
}

// Affinity is how many requests with a session went where it had been before,
// and how many did not.
func (s *sessionSticky) Affinity() (hits, misses int64) { return s.hits, s.misses }

// newTokenDecider is the decider of document 003's pd-profile-handler: new
// tokens beyond the cached ones, more than 10.
type newTokenDecider struct {
	named
	Threshold int `json:"threshold" min:"0"`

	source prefixSource
}

func newNewTokenDecider(b *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	d := &newTokenDecider{named: base("new-token-pd-decider", name), Threshold: 10}
	if err := p.Decode(d); err != nil {
		return nil, err
	}
	findPrefix(b, "", name, &d.source)
	return d, nil
}

// Disaggregate counts what is new.
func (d *newTokenDecider) Disaggregate(c *picker.Cycle, decode int32) bool {
	if decode < 0 {
		return true
	}
	m := d.source.match(c)
	return c.Request.Tokens-int(m.of(c.State(decode)))*m.blockTokens > d.Threshold
}
