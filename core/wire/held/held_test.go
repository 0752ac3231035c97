package held

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

const b = "B"

// Whatever the payload, and however the body is cut, both parts come out as
// they went in, and part 1 is whole before a byte of part 2 is there.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Custom(func(t *rapid.T) []byte { return []byte(rapid.String().Draw(t, "text")) }),
			rapid.SampledFrom([][]byte{[]byte("\r\n--"), []byte("\r\n--windtunnel-"), []byte("--B--\r\n"),
				[]byte("\r\n\r\n--")}),
		).Draw(t, "payload")
		metadata := rapid.StringMatching(`[a-z0-9]{0,40}`).Draw(t, "metadata")
		d := machine.NewDraw(rapid.Uint64().Draw(t, "seed"), "epp", "boundary", 0)
		boundary := NewBoundary(&d, payload)
		parsed, isHeld, err := Boundary(ContentType(boundary))
		if err != nil || !isHeld || parsed != boundary {
			t.Fatalf("boundary %q: %q %v %v", boundary, parsed, isHeld, err)
		}
		r := NewReader(boundary, len(payload))
		feed(t, r, Part1(boundary, payload))
		if !r.PayloadDone() || r.Part2Begun() || !bytes.Equal(r.Payload(), payload) {
			t.Fatalf("after part 1: done %v, part 2 begun %v, payload %q", r.PayloadDone(), r.Part2Begun(), r.Payload())
		}
		feed(t, r, Part2(boundary, metadata))
		if err := r.Close(); err != nil || r.Metadata() != metadata {
			t.Fatalf("after part 2: %v, metadata %q", err, r.Metadata())
		}
	})
}

func feed(t *rapid.T, r *Reader, body []byte) {
	for len(body) > 0 {
		n := rapid.IntRange(1, len(body)).Draw(t, "cut")
		if _, err := r.Write(body[:n]); err != nil {
			t.Fatal(err)
		}
		body = body[n:]
	}
}

// Anybody's multipart reader understands the body.
func TestStandardReaderAgrees(t *testing.T) {
	body := append(Part1(b, []byte(`{"model":"m"}`)), Part2(b, "meta")...)
	mr := multipart.NewReader(bytes.NewReader(body), b)
	for _, want := range [][2]string{{PayloadPart, `{"model":"m"}`}, {MetadataPart, "meta"}} {
		p, err := mr.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(p)
		if p.FormName() != want[0] || string(got) != want[1] {
			t.Fatalf("got %s=%q, want %s=%q", p.FormName(), got, want[0], want[1])
		}
	}
}

func TestViolations(t *testing.T) {
	part1, part2 := string(Part1(b, []byte("{}"))), string(Part2(b, "m"))
	for name, c := range map[string]struct{ body, want string }{
		"empty":          {"", "before part 1"},
		"half of part 1": {part1[:20], "before part 1"},
		"no part 2":      {part1, "before part 2"},
		"half of part 2": {part1 + part2[:30], "before part 2"},
		"other boundary": {"--C\r\n", "does not begin with the boundary"},
		"not multipart":  {`{"model":"m"}`, "does not begin with the boundary"},
		"swapped parts":  {"--B\r\n" + part2, `expected a part named "request_payload"`},
		"part 1 twice": {part1 + "Content-Disposition: form-data; name=\"request_payload\"\r\n\r\n",
			`expected a part named "metadata"`},
		"bytes after": {part1 + part2 + "x", "after the closing boundary"},
		"a third part": {part1 + strings.TrimSuffix(part2, "--\r\n") + "\r\nmore",
			"not followed by the closing boundary"},
		"long headers": {"--B\r\nX: " + strings.Repeat("y", MaxHeaderBytes+10), "longer than"},
		"long payload": {string(Part1(b, bytes.Repeat([]byte("x"), 200))), "more than 100 bytes"},
		"long metadata": {part1 + string(Part2(b, strings.Repeat("m", MaxMetadataBytes+1))),
			"more than 65536 bytes"},
		"endless payload": {strings.TrimSuffix(part1, "\r\n--B\r\n") + strings.Repeat("x", 300),
			"more than 100 bytes"},
		"delimiter trailer": {"--B oops\r\n", "behind the boundary"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(b, 100)
			_, err := r.Write([]byte(c.body))
			if err == nil {
				err = r.Close()
			}
			var v *ViolationError
			if !errors.As(err, &v) || !strings.Contains(v.Reason, c.want) {
				t.Fatalf("got %v, want a violation with %q", err, c.want)
			}
		})
	}
}

func TestBoundary(t *testing.T) {
	for ct, want := range map[string]struct {
		boundary string
		held, ok bool
	}{
		"application/json":                    {"", false, true},
		"":                                    {"", false, true},
		`Multipart/Form-Data; boundary="a b"`: {"a b", true, true},
		"multipart/form-data":                 {"", true, false},
		"multipart/form-data; boundary=":      {"", true, false},
		"multipart/form-data; boundary=" + strings.Repeat("x", 71): {"", true, false},
	} {
		got, isHeld, err := Boundary(ct)
		if got != want.boundary || isHeld != want.held || (err == nil) != want.ok {
			t.Errorf("%q: got %q %v %v", ct, got, isHeld, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(append(Part1(b, []byte("{}")), Part2(b, "m")...), 3)
	f.Fuzz(func(t *testing.T, body []byte, cut int) {
		whole, pieces := NewReader(b, 1000), NewReader(b, 1000)
		_, err1 := whole.Write(body)
		if err1 == nil {
			err1 = whole.Close()
		}
		cut = max(1, cut%7)
		var err2 error
		for rest := body; len(rest) > 0 && err2 == nil; {
			n := min(cut, len(rest))
			_, err2 = pieces.Write(rest[:n])
			rest = rest[n:]
		}
		if err2 == nil {
			err2 = pieces.Close()
		}
		if (err1 == nil) != (err2 == nil) || whole.Metadata() != pieces.Metadata() ||
			!bytes.Equal(whole.Payload(), pieces.Payload()) {
			t.Fatalf("cutting changes the reading: %v %v", err1, err2)
		}
	})
}
