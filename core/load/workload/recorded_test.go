package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Recorded requests come when they came, as long as they were, and with the
// beginnings in common that they had.
func TestRecorded(t *testing.T) {
	c := Config{Model: "m", Schedule: Schedule{Rate: 1}, Requests: 3, Recorded: []Recorded{
		{ID: "a", At: 0, Chat: true, Stream: true,
			Prompt: []RecordedPrompt{{Bytes: 25, Unit: 10, Heads: []uint64{7, 8, 9}}}, Output: 5},
		{ID: "b", At: 30, Chat: true, Prompt: []RecordedPrompt{{Bytes: 25, Unit: 10, Heads: []uint64{7, 8, 10}}}},
		{ID: "c", At: 20, Prompt: []RecordedPrompt{{Bytes: 12, Unit: 10, Heads: []uint64{11, 12}}, {Bytes: 3}}},
	}}
	var at, bodies []string
	arrivals := c.Arrivals()
	for i := range 3 {
		next, _ := arrivals.Next()
		at = append(at, next.String())
		r := c.Conversation(i, i).Request()
		var body struct {
			Messages  []message
			Prompt    []string
			MaxTokens int `json:"max_tokens"`
			MinTokens int `json:"min_tokens"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if r.ID != c.Recorded[i].ID || body.MaxTokens != c.Recorded[i].Output || body.MinTokens != body.MaxTokens ||
			strings.Contains(r.Path, "chat") != c.Recorded[i].Chat {
			t.Errorf("%+v %+v", r, body)
		}
		for _, m := range body.Messages {
			bodies = append(bodies, m.Content)
		}
		bodies = append(bodies, body.Prompt...)
	}
	if want := []string{"0s", machine.Time(30).String(), machine.Time(30).String()}; strings.Join(at,
		" ") != strings.Join(want, " ") {
		t.Errorf("arrivals %v, want %v", at, want)
	}
	a, b := bodies[0], bodies[1]
	if len(a) != 25 || len(b) != 25 || a[:20] != b[:20] || a[20:] == b[20:] || len(bodies[2]) != 12 ||
		len(bodies[3]) != 3 {
		t.Errorf("prompts %q", bodies)
	}
}
