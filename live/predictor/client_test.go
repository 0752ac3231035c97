package predictor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
)

// The requests that llm-d's own client sends (llm-d-router ebab687, latencypredictorclient), in its order: at its
// start, for each decision, each second, and each minute. Times in the answers are masked, because they differ from
// run to run.
func TestLLMDsClient(t *testing.T) {
	t.Parallel()
	s := serving(t, func(_ context.Context, f core.Fit) core.Fitted {
		out := core.Fitted{Number: f.Number, Library: "a library", Models: map[core.Name][]byte{}}
		for _, set := range f.Sets {
			out.Models[set.Name] = leaf(set.Columns, 7.25)
		}
		return out
	})
	at := map[string]string{"prediction": "http://" + s.PredictionAddresses()[0],
		"training": "http://" + s.TrainingAddress()}
	datadriven.RunTest(t, "testdata/llm-d-client", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "trained" {
			for end := time.Now().Add(time.Minute); !s.models.Load().Ready(core.TTFT); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it never learned: %+v", s.Status())
				}
			}
			return ""
		}
		url := at[d.CmdArgs[0].Key] + d.CmdArgs[1].Key
		req, err := http.NewRequest(strings.ToUpper(d.Cmd), url, strings.NewReader(d.Input))
		if err != nil {
			t.Fatal(err)
		}
		if d.Input != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var x any
		if err := json.Unmarshal(text, &x); err != nil {
			t.Fatalf("%v: %.300s", err, text)
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(masked("", x)); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s\n%s", resp.StatusCode, resp.Header.Get("Content-Type"),
			strings.ReplaceAll(b.String(), at["training"], "http://TRAINING"))
	})
}

// masked returns an answer without the values that differ from run to run. A string is a time if Go's time.Time can
// parse it.
func masked(name string, x any) any {
	switch v := x.(type) {
	case map[string]any:
		for k := range v {
			v[k] = masked(k, v[k])
		}
	case []any:
		for i := range v {
			v[i] = masked("", v[i])
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return "TIME"
		}
	case float64:
		if name == "processing_time_ms" {
			return "MILLISECONDS"
		}
	}
	return x
}
