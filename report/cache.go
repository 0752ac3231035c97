package report

import "github.com/windtunnel/windtunnel/core/record"

// CacheSummary is how much of all prompts the model servers had cached.
type CacheSummary struct {
	PromptTokens int `json:"promptTokens"`
	CachedTokens int `json:"cachedTokens"`
	// HitRate is the second over the first.
	HitRate float64 `json:"hitRate"`
}

// cacheTally adds up what model servers say of prompts.
type cacheTally struct{ prompt, cached int }

// record takes a server's event into account: the prompt's length when it
// comes, and once for each time it comes what was cached when it was scheduled
// first. A preempted request finds its own blocks again, which is no hit, and a
// decode server has all that the prefill leg computed, which is none either.
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

// whole is a detail that counts something: a number of a run's own, or one that
// a recording's JSON brought.
func whole(v any) (n int, ok bool) {
	switch x := v.(type) {
	case int:
		return x, true
	case float64:
		return int(x), x >= 0 && x <= 1<<53
	}
	return 0, false
}

// summary is nil where no prompt was looked up.
func (c *cacheTally) summary() *CacheSummary {
	if c.prompt == 0 {
		return nil
	}
	return &CacheSummary{PromptTokens: c.prompt, CachedTokens: c.cached, HitRate: float64(c.cached) / float64(c.prompt)}
}
