package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// A summary lists each index and marks the wrong one, also after a recording.
func TestIndexesAreReported(t *testing.T) {
	t.Parallel()
	list := []IndexSummary{
		{Index: "whole", Pods: 1, Blocks: 1200, Events: 40, P50: .001, P90: .002, P99: .003, Max: .5},
		{Index: "wrong", Pods: 2, Blocks: 30, Missing: 1, Extra: 2},
		{Index: "small", Pods: 2, Blocks: 30, Missing: 1, Excuse: "it keeps at most 29 blocks"},
	}
	var out bytes.Buffer
	s, err := Start(Options{Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	s.SetIndexes(list)
	sum, err := s.End(false)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Wrong() != 1 {
		t.Errorf("%d indexes are wrong, expected 1", sum.Wrong())
	}
	for _, want := range []string{
		"kv index   whole: 1,200 blocks on 1 pod, the union of the engines' blocks",
		"  lag      40 events from made to indexed: p50 1.0ms, p90 2.0ms, p99 3.0ms, max 500.0ms",
		"wrong: 30 blocks on 2 pods, NOT the union of the engines' blocks: 1 missing, 2 too many\n",
		"1 missing, 0 too many (it keeps at most 29 blocks)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	line, err := json.Marshal(map[string]Summary{"summary": sum})
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read("x", bytes.NewReader(line), nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Start(Options{Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	again.Restore(*read)
	if sum, err = again.End(false); err != nil || len(sum.IndexLag) != 3 || sum.IndexLag[1] != list[1] {
		t.Errorf("retold: %+v, %v", sum.IndexLag, err)
	}
}
