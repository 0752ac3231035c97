package program

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A recording has the explanation of a pick as an object, for tools such as jq, and not as JSON in a string.
func TestExplanationIsAnObject(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.ndjson")
	var out bytes.Buffer
	if code := run([]string{"sim", "-n", "3", "--record", file}, testOutside(&out)); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	picked := 0
	for line := range bytes.Lines(data) {
		var e struct {
			Step    string
			Details struct{ Explanation json.RawMessage }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Step != "endpoint_picked" {
			continue
		}
		picked++
		var profiles struct{ Profiles []map[string]any }
		if err := json.Unmarshal(e.Details.Explanation, &profiles); err != nil || len(profiles.Profiles) == 0 {
			t.Errorf("%v: explanation is %s", err, e.Details.Explanation)
		}
	}
	if picked != 3 {
		t.Errorf("%d decisions of 3", picked)
	}
}
