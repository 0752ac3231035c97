package stack

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/report"
)

// askManager compares the KV-Cache Manager's index once more, by its answers over HTTP.
func (s *Pool) askManager(ctx context.Context, checks []report.IndexSummary) []report.IndexSummary {
	at := slices.IndexFunc(checks, func(c report.IndexSummary) bool { return c.Index == report.ManagerIndex })
	if at < 0 || ctx.Err() != nil {
		return checks
	}
	c := &checks[at]
	engines := s.engineBlocks()
	missing, extra := 0, 0
	for i, server := range s.Names {
		m, x, err := s.askAbout(ctx, server, s.blockNames(engines[i]))
		if err != nil {
			s.o.Log.Error("the KV-Cache Manager cannot be asked", "pod", server, "error", err)
			c.Missing = max(1, c.Blocks)
			return checks
		}
		missing += m
		extra += x
	}
	c.Missing, c.Extra = missing, extra
	return checks
}

// blockNames are document 003's names of an engine's blocks, one for each
// content.
func (s *Pool) blockNames(hashes []kv.EngineHash) []string {
	s.kv.mu.Lock()
	defer s.kv.mu.Unlock()
	names := s.kv.names[kv.Hasher{BlockTokens: s.pool.BlockTokens}]
	seen := map[kv.Key]bool{}
	out := make([]string, 0, len(hashes))
	for _, h := range hashes {
		if keys := names.Names(h); len(keys) > 0 {
			if seen[keys[0]] {
				continue
			}
			seen[keys[0]] = true
		}
		out = append(out, h.Name())
	}
	return out
}

// askedAtOnce is how many blocks one question names.
const askedAtOnce = 4096

// askAbout counts the blocks that a pod's engine has and the manager does not, and the reverse. A score counts blocks
// up to the first that is missing, so the next question begins after it.
func (s *Pool) askAbout(ctx context.Context, pod string, blocks []string) (missing, extra int, err error) {
	base := "http://" + s.kv.manager.HTTPAddress() + "/api/v1/"
	present := 0
	for ask := blocks; len(ask) > 0; {
		body, err := json.Marshal(
			map[string]any{"prompt_blocks": ask[:min(askedAtOnce, len(ask))], "candidate_pods": []string{pod}})
		if err != nil {
			return 0, 0, err
		}
		var answer struct {
			Scores map[string]struct {
				Present int `json:"blocks_present"`
				Total   int `json:"blocks_total"`
			}
		}
		if err := askFor(ctx, http.MethodPost, base+"score", body, &answer); err != nil {
			return 0, 0, err
		}
		score := answer.Scores[pod]
		present += score.Present
		ask = ask[score.Present:]
		if score.Present < score.Total || score.Total == 0 {
			missing++
			ask = ask[1:]
		}
	}
	var info struct {
		Blocks int `json:"blocks_cached"`
	}
	if err := askFor(ctx, http.MethodGet, base+"cache/pod/"+url.PathEscape(pod), nil, &info); err != nil &&
		len(blocks) > 0 {
		return 0, 0, err
	}
	return missing, max(0, info.Blocks-present), nil
}

// askFor asks the KV-Cache Manager.
func askFor(ctx context.Context, method, url string, body []byte, into any) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return serve.FetchJSON(ctx, &client, method, url, body, 64<<20, into)
}
