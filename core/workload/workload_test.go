package workload

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Every prompt has the length asked for and survives JSON.
func TestPrompts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		c := Config{Seed: rapid.Uint64().Draw(t, "seed"), Model: "m", Stream: true, MaxTokens: 3,
			Alphabet: Alphabet(rapid.IntRange(0, 2).Draw(t, "alphabet")), Characters: rapid.Bool().Draw(t, "characters"),
			Length: func(*machine.Draw) int { return n }}
		r := c.Request(4)
		var body struct {
			Model    string
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		prompt := body.Messages[0].Content
		got := len(prompt)
		if c.Characters {
			got = utf8.RuneCountInString(prompt)
		}
		if got != n || !utf8.ValidString(prompt) {
			t.Fatalf("length %d, want %d", got, n)
		}
		if again := c.Request(4); string(again.Body) != string(r.Body) || again.ID != r.ID {
			t.Fatal("the same number makes another request")
		}
	})
}

func TestArrivals(t *testing.T) {
	c := Config{Seed: 1, Rate: 100}
	var sum machine.Time
	for i := range 10_000 {
		sum += c.Gap(i)
	}
	if mean := sum.Seconds() / 10_000; mean < 0.0095 || mean > 0.0105 {
		t.Fatalf("mean gap %v s at 100 requests per second", mean)
	}
}
