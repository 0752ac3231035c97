package modelserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
)

// The same stop ends the same request on every way to the server: whole,
// streamed, as a completion or a chat, by HTTP and by gRPC.
func TestStopsOnEveryWay(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	conn := dial(t, b)
	plain := post(b, "stop", "/v1/completions",
		`{"prompt":[1,2,3],"max_tokens":30,"ignore_eos":true,"return_token_ids":true}`)
	ids := numbers(plain, "token_ids")
	if len(ids) != 30 {
		t.Fatal(plain)
	}
	id := ids[7]
	first := slices.Index(ids, id)
	for _, x := range []struct {
		more, reason, stop string
		tokens             int
	}{
		{"", "length", "null", 30},
		{fmt.Sprintf(`,"stop_token_ids":[4000000000,%d]`, id), "stop", fmt.Sprint(id), first + 1},
		// masked at first; whatever comes, the ways agree
		{fmt.Sprintf(`,"stop_token_ids":[%d],"min_tokens":20`, id), "", "", 0},
		{`,"stop_token_ids":[4000000000]`, "length", "null", 30},
		{`,"stop":" ` + secondWord(plain) + `"`, "stop", `" ` + secondWord(plain) + `"`, 0},
	} {
		whole := post(b, "stop", "/v1/completions",
			`{"prompt":[1,2,3],"max_tokens":30,"ignore_eos":true,"return_token_ids":true`+x.more+`}`)
		streamed := joined(post(b, "stop", "/v1/completions",
			`{"prompt":[1,2,3],"max_tokens":30,"ignore_eos":true,"return_token_ids":true,"stream":true`+x.more+`}`))
		var w struct {
			Choices []struct {
				Text   string          `json:"text"`
				Reason string          `json:"finish_reason"`
				Stop   json.RawMessage `json:"stop_reason"`
				IDs    []uint32        `json:"token_ids"`
			}
			Usage struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(whole), &w); err != nil {
			t.Fatal(err, whole)
		}
		c := w.Choices[0]
		if x.reason != "" && (c.Reason != x.reason || string(c.Stop) != x.stop) || x.tokens > 0 &&
			w.Usage.Completion != x.tokens || len(c.IDs) != w.Usage.Completion {
			t.Errorf("%s: %s %s after %d tokens: %s", x.more, c.Reason, c.Stop, w.Usage.Completion, whole)
		}
		if streamed.text != c.Text || streamed.reason != c.Reason || streamed.stop != string(c.Stop) ||
			!slices.Equal(streamed.ids, c.IDs) {
			t.Errorf("%s: streamed %+v, whole %+v", x.more, streamed, c)
		}
		var q vllmgrpc.GenerateRequest
		n := uint32(30)
		q.RequestId, q.Input = "stop",
			&vllmgrpc.GenerateRequest_Tokenized{Tokenized: &vllmgrpc.TokenizedInput{InputIds: []uint32{1, 2, 3}}}
		q.SamplingParams = &vllmgrpc.SamplingParams{MaxTokens: &n, IgnoreEos: true}
		var more struct {
			IDs  []uint32 `json:"stop_token_ids"`
			Min  uint32   `json:"min_tokens"`
			Stop string   `json:"stop"`
		}
		_ = json.Unmarshal([]byte(`{"x":0`+x.more+`}`), &more)
		q.SamplingParams.StopTokenIds, q.SamplingParams.MinTokens = more.IDs, more.Min
		if more.Stop != "" {
			q.SamplingParams.Stop = []string{more.Stop}
		}
		for _, stream := range []bool{false, true} {
			q.Stream = stream
			chunks, ends, err := generateCall(t, t.Context(), conn, &q)
			if err != nil || len(ends) != 1 {
				t.Fatal(ends, err)
			}
			var ids []uint32
			for _, ch := range chunks {
				ids = append(ids, ch.TokenIds...)
			}
			if !stream {
				ids = ends[0].OutputIds
			}
			stop := "null"
			switch m := ends[0].MatchedStop.(type) {
			case *vllmgrpc.GenerateComplete_MatchedTokenId:
				stop = fmt.Sprint(m.MatchedTokenId)
			case *vllmgrpc.GenerateComplete_MatchedStopStr:
				stop = fmt.Sprintf("%q", m.MatchedStopStr)
			}
			if !slices.Equal(ids, c.IDs) || ends[0].FinishReason != c.Reason || stop != string(c.Stop) {
				t.Errorf("%s: gRPC (stream %v) %v %s %s; HTTP %+v", x.more, stream, ids, ends[0].FinishReason, stop, c)
			}
		}
	}
}

// Nobody makes the server look for a million strings at each token.
func TestStopLimits(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	for _, more := range []string{`"stop":["` + strings.Repeat(`a","`, 128) + `a"]`,
		`"stop":"` + strings.Repeat("a", 8192+1) + `"`,
		`"stop_token_ids":[` + strings.Repeat("1,", 1024) + `1]`} {
		if resp, body := b.post("/v1/completions", `{"prompt":"x","max_tokens":1,`+more+`}`); resp.StatusCode != 400 ||
			len(body) > 500 {
			t.Errorf("%d %.200s", resp.StatusCode, body)
		}
	}
}

func post(b *bench, id, path, body string) string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.URL()+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	checkJSON(b.t, resp, all)
	return string(all)
}

func numbers(body, name string) (ids []uint32) {
	_, rest, _ := strings.Cut(body, `"`+name+`":`)
	_ = json.NewDecoder(strings.NewReader(rest)).Decode(&ids)
	return ids
}

func secondWord(body string) string {
	_, rest, _ := strings.Cut(body, `"text":"`)
	return strings.Fields(strings.Trim(rest, ` "`))[1]
}

type joinedStream struct {
	text, reason, stop string
	ids                []uint32
}

func joined(sse string) (j joinedStream) {
	for lines := bufio.NewScanner(strings.NewReader(sse)); lines.Scan(); {
		var c struct {
			Choices []struct {
				Text   string
				Reason string          `json:"finish_reason"`
				Stop   json.RawMessage `json:"stop_reason"`
				IDs    []uint32        `json:"token_ids"`
			}
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &c) != nil || len(c.Choices) == 0 {
			continue
		}
		x := c.Choices[0]
		j.text, j.ids, j.stop = j.text+x.Text, append(j.ids, x.IDs...), string(x.Stop)
		j.reason = x.Reason
	}
	return j
}
