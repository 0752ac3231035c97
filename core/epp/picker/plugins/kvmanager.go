package plugins

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
)

// kvManager is KVCacheManagerScorer: it asks the KV-cache manager (POST
// /api/v1/score) which share of the prompt each endpoint holds. Without an
// answer in time, or below cache_threshold, an endpoint scores 0.
type kvManager struct {
	named
	Endpoint  string          `json:"endpoint"`
	Timeout   config.Duration `json:"timeout" above:"0s"`
	Threshold float64         `json:"cache_threshold" min:"0" max:"1"`
}

var newKVManager = picker.Of(kvManager{Timeout: config.Duration(50 * machine.Millisecond), Threshold: .5})

// Configure implements picker.Configurer.
func (s *kvManager) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	return checkURL(&s.Endpoint, p.At("endpoint"), "the KV-cache manager's URL, such as http://127.0.0.1:8080")
}

// checkURL checks a service's base URL and drops a slash at its end.
func checkURL(text *string, p picker.Params, expected string) error {
	u, err := url.Parse(*text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return p.Expected(expected)
	}
	*text = strings.TrimSuffix(*text, "/")
	return nil
}

// maxAsked limits the bytes of a prompt that the manager gets.
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
		names = append(names, v.States[i].Pod()) // a manager knows no ports of pods
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
	return []picker.Need{{Plugin: s.Name(), Key: KeyKVScore, Method: "POST", URL: s.Endpoint + "/api/v1/score",
		Timeout: s.Timeout.Time(), Body: body}}
}

type kvAnswer struct {
	Scores map[string]struct {
		HitRate float64 `json:"cache_hit_rate"`
		Score   float64 `json:"score"`
	} `json:"scores"`
}

// ScoresCache implements picker.CacheScorer.
func (s *kvManager) ScoresCache() {}

// Score reads the answer.
func (s *kvManager) Score(c *picker.Cycle, in []int32, scores []float64) {
	a := c.Answer(s, KeyKVScore)
	var got kvAnswer
	if a == nil || a.Err != nil || json.Unmarshal(a.Value, &got) != nil {
		return
	}
	for j, i := range in {
		if x, ok := got.Scores[c.State(i).Pod()]; ok && x.HitRate >= s.Threshold {
			scores[j] = x.HitRate
		}
	}
}
