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

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
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
		o.StoreResponses, o.SGLang = !strings.Contains(path, "unstored"), strings.Contains(path, "sglang")
		if strings.Contains(path, "echo") {
			o.Content = modelserver.ContentEcho
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
			req, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(d.Cmd), b.URL()+path,
				strings.NewReader(d.Input))
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
			return fmt.Sprintf("%d %s\n%s\n", resp.StatusCode, resp.Header.Get("Content-Type"),
				volatile.ReplaceAll(body, []byte(`"$1":0`)))
		})
	})
}

// checkJSON fails unless everything in a response that claims to be JSON is.
func checkJSON(t *testing.T, resp *http.Response, body []byte) {
	t.Helper()
	switch resp.Header.Get("Content-Type") {
	case wire.JSON:
		if !json.Valid(body) {
			t.Errorf("not JSON: %s", body)
		}
	case "text/event-stream; charset=utf-8":
		lines := bufio.NewScanner(bytes.NewReader(body))
		for lines.Scan() {
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			if ok && string(data) != "[DONE]" && !json.Valid(data) {
				t.Errorf("not JSON: %s", data)
			}
		}
	}
}
