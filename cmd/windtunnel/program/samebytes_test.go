package program

import (
	"path/filepath"
	"testing"
)

// The same seed gives the same bytes, with any other outputs and ways of playing, and another seed gives others.
func TestSameSeedSameBytes(t *testing.T) {
	t.Parallel()
	for _, example := range []string{"plain", "pd", "kv-aware", "classes", "incidents", "conversations"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			command := []string{"sim", "../../../examples/" + example + ".yaml", "-n", "60", "--output", "csv"}
			want := printed(t, command...)
			summary := printed(t, append(command[:4:4], "--output", "json", "--view", "progress")...)
			for _, more := range [][]string{
				{},
				{"--record", filepath.Join(dir, "a.ndjson")},
				{"--record", filepath.Join(dir, "b.ndjson.gz"), "--record-bodies"},
				{"--outcomes", filepath.Join(dir, "c.outcomes"), "--junit", filepath.Join(dir, "c.xml")},
				{"--step-by-step"},
				{"--bytes"},
			} {
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
