package workload

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Every prompt has the length asked for and survives JSON.
func TestPrompts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		c := Config{Seed: rapid.Uint64().Draw(t, "seed"), Model: "m", Stream: true, MaxTokens: 3,
			Prompts: Prompts{Alphabet: Alphabet(rapid.IntRange(0, 2).Draw(t, "alphabet")),
				Characters: rapid.Bool().Draw(t, "characters"), Length: func(*machine.Draw) int { return n }}}
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

// Conversations follow one another without a gap in the requests' numbers;
// each turn carries all that was said before, and what failed is not spoken of.
func TestConversations(t *testing.T) {
	c := Config{Seed: 7, Model: "m", Requests: 100, SessionHeader: "x-session-id",
		Turns:     func(d *machine.Draw) int64 { return int64(d.Intn(5)) + 1 },
		ThinkTime: func(d *machine.Draw) int64 { return int64(d.Intn(1000)) }}
	talked, next := 0, 0
	for i := 0; ; i++ {
		v := c.Conversation(i, next)
		if v == nil {
			break
		}
		var said []string
		for turn := range v.Turns {
			r := v.Request()
			if r.Index != next+turn || r.ID != c.ID(next+turn) ||
				r.Header[0] != (header.Header{Name: "x-session-id", Value: v.Session()}) {
				t.Fatalf("conversation %d, turn %d: %+v", i, turn, r)
			}
			var body struct{ Messages []message }
			if err := json.Unmarshal(r.Body, &body); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range body.Messages[:len(body.Messages)-1] {
				got = append(got, m.Role+" "+m.Content)
			}
			if !slices.Equal(got, said) {
				t.Fatalf("turn %d begins with %q, expected %q", turn, got, said)
			}
			user := body.Messages[len(body.Messages)-1]
			if more := turn+1 < v.Turns; v.More() != more {
				t.Fatalf("turn %d of %d: more %v", turn, v.Turns, v.More())
			}
			outcome := record.Broken
			if turn%3 != 1 {
				outcome = record.Completed
				said = append(said, "user "+user.Content, "assistant answer "+r.ID)
			}
			v.Next("answer "+r.ID, outcome)
		}
		next += v.Turns
		talked++
	}
	if next != c.Requests || talked < 20 || talked > 60 {
		t.Fatalf("%d requests in %d conversations", next, talked)
	}
}

// Adapters are asked for as often as their shares say, by whole conversations.
func TestAdapters(t *testing.T) {
	c := Config{Seed: 3, Model: "base", Adapters: []Adapter{{"a", 0.2}, {"b", 0.5}}}
	count := map[string]int{}
	for i := range 4000 {
		var body struct{ Model string }
		if err := json.Unmarshal(c.Request(i).Body, &body); err != nil {
			t.Fatal(err)
		}
		count[body.Model]++
	}
	for name, want := range map[string]int{"a": 800, "b": 2000, "base": 1200} {
		if n := count[name]; n < want-150 || n > want+150 {
			t.Errorf("%s was asked for %d times of 4000, expected about %d", name, n, want)
		}
	}
}

// Whether a request's client leaves depends on the request's number only.
func TestLeaving(t *testing.T) {
	c := Config{Seed: 5, Leaving: Leaving{Share: 0.1, Numbers: map[int]bool{3: true},
		After: func(*machine.Draw) int64 { return 42 }}}
	left := 0
	for i := range 2000 {
		after, leaves := c.Leaves(i)
		if leaves {
			left++
		}
		if leaves && after != 42 || i == 3 && !leaves {
			t.Fatalf("request %d: %v %v", i, after, leaves)
		}
	}
	if left < 150 || left > 250 {
		t.Errorf("%d of 2000 left at a rate of 10%%", left)
	}
	if _, leaves := (&Config{}).Leaves(1); leaves {
		t.Error("somebody leaves whom nobody asked to")
	}
}
