package sse

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// scan reads a stream cut into pieces: the data of its events, those without
// any left out, and all bytes again.
func scan(pieces ...string) (data []string, raw string) {
	var s Scanner
	take := func(e Event) {
		raw += string(e.Raw)
		if e.Data != nil {
			data = append(data, string(e.Data))
		}
	}
	for _, p := range pieces {
		mine := []byte(p)
		s.Write(mine)
		for e, ok := s.Next(); ok; e, ok = s.Next() {
			take(e)
		}
		clear(mine) // it is the caller's again
	}
	if e, ok := s.Last(); ok {
		take(e)
	}
	return data, raw
}

func TestEvents(t *testing.T) {
	for stream, want := range map[string][]string{
		"data: a\n\ndata:b\n\n":                             {"a", "b"},
		"data: a\r\n\r\ndata: b\r\n\r\n":                    {"a", "b"},
		"data: a\r\rdata: b\r\r":                            {"a", "b"},
		"data: a\ndata: b\ndata\n\n":                        {"a\nb\n"},
		": alive\n\nevent: x\nid: 1\ndata: a\nretry: 3\n\n": {"a"},
		"data:  a\n\ndata:\n\ndatabase: x\n\n":              {" a", ""},
		"data: a\n\ndata: not whole":                        {"a", "not whole"},
		"data: a\n\ndata: not\n":                            {"a", "not"},
		"\n\r\n\r\r\ndata: a\r\n\n":                         {"a"},
		"":                                                  nil, "\n": nil, "data": {""}, ":": nil, "x": nil,
	} {
		for step := 1; step <= len(stream)+1; step++ {
			var pieces []string
			for rest := stream; rest != ""; {
				n := min(step, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			if got, raw := scan(pieces...); !slices.Equal(got, want) || raw != stream {
				t.Errorf("%q, %d at a time: %q of %q, expected %q", stream, step, got, raw, want)
			}
		}
	}
}

// However a stream is cut, its events are those that a plain reading of all of
// it finds, and no byte is lost.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(
			rapid.SampledFrom([]string{"\n", "\r", "\r\n", "\n\n", "data", "data:", " ", "x", ":", "event: y"}), 0,
			40).Draw(t, "words")
		stream := strings.Join(words, "")
		var pieces []string
		for rest := stream; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		got, raw := scan(pieces...)
		if want := plain(stream); !slices.Equal(got, want) || raw != stream {
			t.Fatalf("%q in %q: %q of %q, expected %q", stream, pieces, got, raw, want)
		}
	})
}

// plain returns the reading of a whole stream in the words of the standard.
func plain(stream string) (out []string) {
	var data []string
	for _, line := range strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)+"\n\n", "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "" && data != nil:
			out, data = append(out, strings.Join(data, "\n")), nil
		case name == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return out
}

// An event whose data is replaced keeps its other lines and its line ends.
func TestReplace(t *testing.T) {
	for in, want := range map[string]string{
		"event: x\ndata: {}\nid: 1\n\n": "event: x\ndata: new\nid: 1\n\n",
		"data: {\r\ndata: }\r\n\r\n":    "data: new\r\n\r\n",
		"data: {}\r:c\r\r":              "data: new\r:c\r\r",
		"data: {}":                      "data: new",
	} {
		e := Event{Raw: []byte(in)}
		if got := string(e.Replace(nil, []byte("new"))); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}

// A caller that checks TooLong limits the memory of an incomplete event.
func TestTooLong(t *testing.T) {
	s := Scanner{Limit: 8}
	s.Write([]byte("data: 0123456789\n\nda"))
	if _, ok := s.Next(); !ok {
		t.Fatal("an event that came at once is not handed out")
	}
	if _, ok := s.Next(); ok || s.TooLong() {
		t.Errorf("%q is too long", s.Rest())
	}
	s.Write([]byte("ta: 0123"))
	if _, ok := s.Next(); ok || !s.TooLong() || string(s.Rest()) != "data: 0123" {
		t.Errorf("%q is not too long", s.Rest())
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\n: c\n\n"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, at int) {
		at = min(max(at, 0), len(stream))
		got, raw := scan(string(stream[:at]), string(stream[at:]))
		if want := plain(string(stream)); !slices.Equal(got, want) || raw != string(stream) {
			t.Errorf("%q at %d: %q, expected %q", stream, at, got, want)
		}
	})
}

// The usual chunk of a stream: one event, whole.
func BenchmarkScanner(b *testing.B) {
	chunk := []byte("data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n")
	b.SetBytes(int64(len(chunk)))
	var s Scanner
	for b.Loop() {
		s.Write(chunk)
		for _, ok := s.Next(); ok; _, ok = s.Next() {
		}
	}
}
