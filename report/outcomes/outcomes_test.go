package outcomes

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

func written(t interface {
	Fatal(...any)
}, path string, list []Request) []byte {
	w, err := Create(path, Header{Seed: 7, Scenario: "a\nb"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		w.Add(&list[i])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Requests are read as they were written, in 40 bytes each, with any durations.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.outcomes")
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Request {
			prompt := rapid.Int32Min(0).Draw(t, "prompt")
			return Request{Number: rapid.Int32Min(1).Draw(t, "number"),
				Sent: machine.Time(rapid.Int64Range(0, 1<<61-1).Draw(t, "sent")),
				TTFT: machine.Time(rapid.Int64Range(0, 1<<61).Draw(t, "ttft")),
				E2E:  machine.Time(rapid.Int64Range(0, 1<<61).Draw(t, "e2e")), Prompt: prompt,
				Cached: rapid.Int32Range(0, prompt).Draw(t, "cached"),
				Tokens: rapid.Int32Min(0).Draw(t, "tokens"), Completed: rapid.Bool().Draw(t, "completed"),
				Judged: rapid.Bool().Draw(t, "judged"), Good: rapid.Bool().Draw(t, "good")}
		}), 0, 20).Draw(t, "list")
		text := written(t, path, list)
		if n := len(text) - bytes.IndexByte(text, '\n') - 1; n != size*(len(list)+1) {
			t.Fatalf("%d requests take %d bytes", len(list), n)
		}
		var read []Request
		h, err := ReadFile(path, func(r Request) { read = append(read, r) })
		if err != nil || h.Seed != 7 || h.Scenario != "a\nb" || !slices.Equal(read, list) || !Is(path) {
			t.Fatalf("found %+v, %v\n%+v\nexpected\n%+v", h, err, read, list)
		}
		// Cut anywhere, it is no whole file.
		cut := rapid.IntRange(0, len(text)-1).Draw(t, "cut")
		if _, err := Read(bytes.NewReader(text[:cut]), func(Request) {}); err == nil {
			t.Fatalf("cut after %d of %d bytes it was read", cut, len(text))
		}
	})
}

func TestMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.outcomes")
	good := string(written(t, path, []Request{{Number: 1, Prompt: 5, Cached: 5}}))
	begin := strings.IndexByte(good, '\n') + 1
	for _, c := range []struct{ text, expected string }{
		{"", "found no line that begins with"},
		{"kind: Scenario\n", "found no line that begins with"},
		{Magic + strings.Repeat("x", 2*maxLine), "found no line that begins with"},
		{Magic + "7\n", "expected a JSON object"},
		{good + "x", "something follows the last of its 1 requests"},
		{good[:begin] + good[begin+size:], "its end counts 1 requests, and it has 0"},
		{strings.Replace(good, "\x05\x00\x00\x00\x05", "\x04\x00\x00\x00\x05", 1),
			"a prompt of 4 tokens, 5 of them cached"},
	} {
		if _, err := Read(strings.NewReader(c.text), func(Request) {}); err == nil ||
			!strings.Contains(err.Error(), c.expected) {
			t.Errorf("of %.40q: found %v; expected %s", c.text, err, c.expected)
		}
	}
	if Is(t.TempDir()) || Is(filepath.Join(t.TempDir(), "none")) {
		t.Error("a folder and a file that is not there count as outcomes")
	}
}

// A file of version 1 is read as it was written, in microseconds.
func TestVersion1IsRead(t *testing.T) {
	record := binary.LittleEndian.AppendUint64(nil, 3_000_000_000|1<<63|1<<62)
	for _, v := range []uint32{7, 200_000, 4_294_967_295, 12, 8, 5} {
		record = binary.LittleEndian.AppendUint32(record, v)
	}
	end := binary.LittleEndian.AppendUint64(nil, 1)
	text := oldMagic + `{"seed":9}` + "\n" + string(record) + string(end) + strings.Repeat("\x00", oldSize-8)
	var read []Request
	h, err := Read(strings.NewReader(text), func(r Request) { read = append(read, r) })
	want := []Request{{Sent: 3 * machine.Second, TTFT: 200 * machine.Millisecond,
		E2E:    4_294_967_295 * machine.Microsecond,
		Number: 7, Prompt: 12, Cached: 8, Tokens: 5, Completed: true, Judged: true}}
	if err != nil || h.Seed != 9 || !slices.Equal(read, want) {
		t.Errorf("found %+v, %v, seed %d", read, err, h.Seed)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(Magic + "{}\n" + strings.Repeat("\x00", size)))
	f.Add([]byte(Magic + "{}\n" + strings.Repeat("\x01", 3*size)))
	f.Add([]byte(oldMagic + "{}\n" + strings.Repeat("\x01", 3*oldSize)))
	f.Fuzz(func(t *testing.T, text []byte) {
		n := 0
		if _, err := Read(bytes.NewReader(text), func(r Request) {
			n++
			if r.Number < 1 || r.Cached > r.Prompt {
				t.Errorf("found %+v", r)
			}
		}); err == nil && len(text) < oldSize*(n+1) {
			t.Errorf("%d requests in %d bytes", n, len(text))
		}
	})
}
