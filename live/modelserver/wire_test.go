package modelserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/engine"
)

var volatile = regexp.MustCompile(`"(created|created_at|peer_port)":\d+`)

// The scripts in testdata/wire read like a session with curl: a method, a
// path, a body, and what comes back, byte for byte but for times.
func TestWire(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/wire", func(t *testing.T, path string) {
		o := fast()
		o.Models = []string{"m", "alias"}
		o.Adapters = []Adapter{{Name: "french", Path: "/adapters/french"}}
		o.Engine.MaxLoRAs = 2
		o.PromptTokensDetails = strings.Contains(path, "details")
		if strings.Contains(path, "echo") {
			o.Content = ContentEcho
		}
		if strings.Contains(path, "omni") {
			o.Omni, o.ImagePercent, o.EncoderOnly = true, 100, true
		}
		b := start(t, o)
		n := 0
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			n++
			path := d.CmdArgs[0].Key
			if len(d.CmdArgs[0].Vals) > 0 {
				path += "=" + d.CmdArgs[0].Vals[0] // the query
			}
			req, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(d.Cmd), b.URL()+path, strings.NewReader(d.Input))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Request-Id", fmt.Sprintf("r%d", n))
			resp, err := b.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			checkJSON(t, resp, body)
			return fmt.Sprintf("%d %s\n%s\n", resp.StatusCode, resp.Header.Get("Content-Type"), volatile.ReplaceAll(body, []byte(`"$1":0`)))
		})
	})
}

// checkJSON fails unless everything in a response that claims to be JSON is.
func checkJSON(t *testing.T, resp *http.Response, body []byte) {
	t.Helper()
	switch resp.Header.Get("Content-Type") {
	case jsonType:
		if !json.Valid(body) {
			t.Errorf("not JSON: %s", body)
		}
	case eventStream:
		lines := bufio.NewScanner(bytes.NewReader(body))
		for lines.Scan() {
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			if ok && string(data) != "[DONE]" && !json.Valid(data) {
				t.Errorf("not JSON: %s", data)
			}
		}
	}
}

// No body of any API makes the server panic or answer something that is no
// answer.
func FuzzBodies(f *testing.F) {
	apis := []prepare{prepareChat, prepareCompletion, prepareResponses, prepareMessages, prepareEmbeddings, prepareGenerate}
	s, err := newServer(&Options{Logger: discard()}, ServerOptions{Engine: engine.Config{Batching: engine.BatchingIndependent}}, 0, nil)
	if err != nil {
		f.Fatal(err)
	}
	for i, body := range []string{
		chatBody + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"array"}}}}}]}`,
		`{"prompt":[[1,2]],"stop":["a","b"],"logprobs":2}`,
		`{"input":[{"type":"function_call","name":"f"},{"role":"user","content":"x"}],"tools":[{"type":"function","name":"f"}],"tool_choice":"required"}`,
		`{"max_tokens":3,"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}`,
		`{"input":["a",""],"encoding_format":"base64"}`,
		`{"token_ids":[1],"sampling_params":{"n":2}}`,
	} {
		f.Add(i, []byte(body))
	}
	f.Fuzz(func(t *testing.T, api int, body []byte) {
		r, _ := http.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-Request-Id", "r")
		req, bad := apis[uint(api)%uint(len(apis))](s, r, body)
		if bad != nil {
			if bad.Status < 400 || bad.Message == "" {
				t.Fatalf("%+v", bad)
			}
			return
		}
		if req.choices() > 64 {
			return
		}
		b := req.enc.begin(nil, s.fakeUsage())
		for i := range req.choices() {
			c := s.content(req, i)
			for k := range 3 {
				tok := token{choice: i, index: k}
				if k == 2 {
					tok.done = c.stopReason()
				}
				c.fill(&tok)
				b = req.enc.token(b, &tok)
			}
		}
		b = req.enc.end(b, s.fakeUsage(), nil, nil)
		if !req.stream && !json.Valid(b) && json.Valid(body) && !strings.Contains(string(b), `"tool_use"`) {
			t.Fatalf("not JSON: %s", b)
		}
	})
}
