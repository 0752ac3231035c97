package recording

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// The fast writer and the slow one write the same bytes.
func TestAppendEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		value := rapid.OneOf(rapid.Map(text, func(s string) any { return s }),
			rapid.Map(rapid.Int(), func(i int) any { return i }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Map(rapid.SliceOf(text), func(l []string) any { return l }),
			rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }))
		e := record.Event{Time: machine.Time(rapid.Int64Range(0, 1e15).Draw(t, "time")),
			Request: text.Draw(t, "request"),
			Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"), Hop: record.Hop("h" + text.Draw(t, "hop")),
			Step:     record.Step("s" + text.Draw(t, "step")),
			Endpoint: text.Draw(t, "endpoint")}
		for range rapid.IntRange(0, 4).Draw(t, "details") {
			e.Details = append(e.Details, record.D(text.Draw(t, "key"), value.Draw(t, "value")))
		}
		fast, err := AppendEvent(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		slow, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var x, y record.Event
		if err := json.Unmarshal(fast, &x); err != nil {
			t.Fatalf("%s: %v", fast, err)
		}
		if err := json.Unmarshal(slow, &y); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(y, x); d != "" {
			t.Fatalf("%s\n%s\n%s", slow, fast, d)
		}
	})
}
