package recording

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/record"
)

// Lines of a log of inputs and events share one file, and each reaches its own reader, with any content and length.
func TestInputsBetweenEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var file bytes.Buffer
		w := NewWriter(&file)
		var want []string
		events := 0
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			if rapid.Bool().Draw(t, "event") {
				w.Record(record.Event{Request: "r", Hop: record.Client, Step: record.RequestSent})
				events++
				continue
			}
			text := strings.Repeat(rapid.StringMatching(`[a-zä☃"\\]{1,9}`).Draw(t, "text"),
				rapid.SampledFrom([]int{1, 50_000, 300_000}).Draw(t, "times"))
			line := `{"input":{"text":"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"}}`
			want = append(want, line)
			if _, err := w.Write([]byte(line + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		w.Summary(struct{}{})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(file.Bytes()) {
			if len(line) > MaxLineBytes {
				t.Fatalf("a line has %d bytes", len(line))
			}
		}
		var got []string
		err := ReadInputs("x", bytes.NewReader(file.Bytes()), func(line []byte) error {
			got = append(got, string(line))
			return nil
		})
		if len(want) > 0 && err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatal("the lines are others than were written")
		}
		if sum, err := Read[struct{}]("x", &file, func(record.Event) error { events--; return nil }); err != nil ||
			sum == nil || events != 0 {
			t.Fatal(sum, err, events)
		}
	})
}
