package report

import "github.com/windtunnel/windtunnel/core/record"

// CacheSummary reports how many prompt tokens the model servers had cached.
type CacheSummary struct {
	PromptTokens int `json:"promptTokens"`
	CachedTokens int `json:"cachedTokens"`
	// HitRate is CachedTokens / PromptTokens, from 0 to 1.
	HitRate float64 `json:"hitRate"`
}

// cacheTally counts prompt tokens and cached ones from model servers' events.
type cacheTally struct{ prompt, cached int }

// record counts a server's event: the prompt's length when it arrives, and its cached tokens when the engine schedules
// it first. A preempted request finds its own blocks again, and a decode server has all blocks that the prefill leg
// computed. Neither is a cache hit.
func (c *cacheTally) record(r *openRequest, e *record.Event) {
	if e.Hop != record.Server || r.prefilled && e.Endpoint != r.prefiller {
		return
	}
	switch e.Step {
	case record.RequestReceived, record.Part1Received:
		if n, ok := whole(e.Details.Get("prompt_tokens")); ok {
			r.prompt = n
		}
	case record.PrefillStarted:
		if n, ok := whole(e.Details.Get("cached_tokens")); ok && r.prompt > 0 {
			c.prompt += r.prompt
			c.cached += min(n, r.prompt)
			r.asked, r.cached = r.prompt, min(n, r.prompt)
			r.prompt, r.prefilled = 0, e.Endpoint == r.prefiller
		}
	}
}

// whole returns a detail that counts something. A running server reports an int, a recording's JSON a float64.
func whole(v any) (n int, ok bool) {
	switch x := v.(type) {
	case int:
		return x, true
	case float64:
		return int(x), x >= 0 && x <= 1<<53
	}
	return 0, false
}

// summary returns nil where no prompt was looked up.
func (c *cacheTally) summary() *CacheSummary {
	if c.prompt == 0 {
		return nil
	}
	return &CacheSummary{PromptTokens: c.prompt, CachedTokens: c.cached, HitRate: float64(c.cached) / float64(c.prompt)}
}
