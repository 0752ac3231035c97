package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/windtunnel/windtunnel/internal/nightly"
)

// storedConversations has turns whose prompts the decode servers find in the external cache of a prefill server.
const storedConversations = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
seed: 953708947
pools:
  - name: default
    model: llama-3.1-8b
    replicas: 2
    sidecar: routing
    disaggregation: {prefillReplicas: 1, connector: shared-storage}
    modelServer: {batching: continuous}
workload:
  requests: 40
  rate: 9
  conversations: {turns: 1..8}
`

// The same seed gives the same bytes, with any other outputs and ways of playing, and another seed gives others.
func TestSameSeedSameBytes(t *testing.T) {
	t.Parallel()
	for i, example := range []string{"plain", "pd", "kv-aware", "classes", "incidents", "conversations", "stored"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := "../../../examples/" + example + ".yaml"
			if example == "stored" {
				file = filepath.Join(dir, "stored.yaml")
				if err := os.WriteFile(file, []byte(storedConversations), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := []string{"sim", file, "-n", "60", "--output", "csv"}
			want := printed(t, command...)
			summary := printed(t, append(command[:4:4], "--output", "json", "--view", "progress")...)
			for k, more := range [][]string{
				{},
				{"--record", filepath.Join(dir, "a.ndjson")},
				{"--record", filepath.Join(dir, "b.ndjson.gz"), "--record-bodies"},
				{"--outcomes", filepath.Join(dir, "c.outcomes"), "--junit", filepath.Join(dir, "c.xml")},
				{"--step-by-step"},
				{"--bytes"},
			} {
				if !nightly.Each(i+k, 2) { // by day each option for every other example
					continue
				}
				if got := printed(t, append(command, more...)...); got != want {
					t.Errorf("with %v the requests are others:\n%.600s\nand without\n%.600s", more, got, want)
				}
				if got := printed(t, append(append(command[:4:4], "--output", "json", "--view", "progress"),
					more...)...); got != summary {
					t.Errorf("with %v the record or summary is another: %d bytes, and %d without", more, len(got),
						len(summary))
				}
			}
			// The record explains fewer endpoints of each decision, and is otherwise the same.
			if got := printed(t, append(command, "--explain", "1")...); got != want {
				t.Error("with --explain 1 the requests are others")
			}
			if printed(t, append(command, "--seed", "77")...) == want {
				t.Error("another seed gives the same bytes")
			}
		})
	}
}
