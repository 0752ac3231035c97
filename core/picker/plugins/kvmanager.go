package plugins

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
)

// kvManager is kv-cache-manager-scorer, document 003's KVCacheManagerScorer:
// it asks the KV-cache manager over HTTP which pods hold the prompt. A pod
// scores what the manager says over 100, or 0 when its hit rate is below
// cache_threshold. Without an answer in time all score 0 and the other scorers
// decide.
type kvManager struct {
	named
	Endpoint  string          `json:"endpoint"`
	Timeout   config.Duration `json:"timeout"`
	Threshold float64         `json:"cache_threshold"`
}

func newKVManager(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &kvManager{base("kv-cache-manager-scorer", name), "", config.Duration(50 * machine.Millisecond), .5}
	if err := p.Decode(s); err != nil {
		return nil, err
	}
	u, err := url.Parse(s.Endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, p.Errorf("endpoint must be the KV-cache manager's URL, such as http://127.0.0.1:8080; found %q", s.Endpoint)
	}
	if s.Timeout <= 0 {
		return nil, p.Errorf("timeout must be above 0s")
	}
	if s.Threshold < 0 || s.Threshold > 1 {
		return nil, p.Errorf("cache_threshold must be between 0 and 1, found %v", s.Threshold)
	}
	s.Endpoint = strings.TrimSuffix(s.Endpoint, "/")
	return s, nil
}

const keyScore = "score"

// Needs asks for the scores of the first prompt.
func (s *kvManager) Needs(_ machine.Time, r *picker.Request, v *picker.View) []picker.Need {
	if r.Body == nil || len(r.Body.Prompts) == 0 || len(v.States) == 0 {
		return nil
	}
	ask := struct {
		Prompt    any      `json:"prompt"`
		Model     string   `json:"model,omitempty"`
		Salt      string   `json:"cache_salt,omitempty"`
		Candidate []string `json:"candidate_pods"`
	}{Prompt: string(r.Body.Prompts[0].Text), Model: r.TargetModel, Salt: r.Body.CacheSalt}
	if ids := r.Body.Prompts[0].Tokens; ids != nil {
		ask.Prompt = ids
	}
	for i := range v.States {
		ask.Candidate = append(ask.Candidate, v.States[i].Name)
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil
	}
	return []picker.Need{{Plugin: s.Name(), Key: keyScore, Method: "POST", URL: s.Endpoint + "/api/v1/score", Body: body, Timeout: s.Timeout.Time()}}
}

// Score takes the manager's word.
func (s *kvManager) Score(c *picker.Cycle, in []int32, scores []float64) {
	a := c.Answer(s, keyScore)
	if a == nil || a.Err != nil {
		return
	}
	var said struct {
		Scores map[string]struct {
			HitRate float64 `json:"cache_hit_rate"`
			Score   float64 `json:"score"`
		} `json:"scores"`
	}
	if json.Unmarshal(a.Value, &said) != nil {
		return
	}
	for j, i := range in {
		if v, ok := said.Scores[c.State(i).Name]; ok && v.HitRate >= s.Threshold {
			scores[j] = v.Score / 100
		}
	}
}
