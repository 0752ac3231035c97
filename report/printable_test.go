package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// evil would clear the screen, set the window's title, hide text and reverse it, in every possible way.
const evil = "a\x1b[2J\x1b]0;title\x07\x9b31m\u009b8m\r\b\x7f\u202eb\x00\n"

// steered returns the characters of a printed text that could control a terminal.
func steered(text string) string {
	if !utf8.ValidString(text) {
		return "bytes that are no text"
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return r
		}
		return -1
	}, text)
}

// colours match the escape sequences of Paint.
var colours = regexp.MustCompile(`\x1b\[(0|1|2|31|32|33|34|35|36|93|94|95|96)m`)

// hostile returns events of requests with hostile text in every field, and the steps that views wait for.
func hostile() []record.Event {
	details := record.Details{record.D(evil, evil), record.D("list", []any{evil, evil}),
		record.D("strings", []string{evil}),
		record.D("map", map[string]any{evil: evil}),
		record.D("texts", map[string]string{evil: evil}), record.D("reason", evil)}
	var out []record.Event
	for i, outcome := range []record.Outcome{record.Completed, evil} {
		id := fmt.Sprint(evil, i)
		at := func(hop record.Hop, step record.Step, d ...record.Detail) {
			out = append(out, record.Event{Time: machine.Time(len(out)) * machine.Millisecond, Request: id, Hop: hop,
				Step: step, Endpoint: evil, Details: append(d, details...)})
		}
		at(record.Client, record.RequestSent)
		at(record.EPP, record.EndpointPicked)
		at(evil, evil)
		at(record.Client, record.LastTokenReceived)
		at(record.Client, record.Finished, record.D("outcome", string(outcome)))
	}
	return out
}

// No view, JSON line or recording passes hostile text from a recording or a client to the terminal.
func TestNothingSteersTheTerminal(t *testing.T) {
	t.Parallel()
	for _, detail := range []Detail{Steps, Lines, Progress} {
		for _, color := range []bool{false, true} {
			var out bytes.Buffer
			feed(t, Options{Out: &out, Detail: detail, Color: color, Requests: 2}, hostile())
			text := out.String()
			if color {
				text = colours.ReplaceAllString(text, "")
			}
			if bad := steered(text); bad != "" || !strings.Contains(text, `a\u001b[2J`) {
				t.Errorf("%s, colours %v: %q in\n%s", detail, color, bad, text)
			}
		}
	}
	var out bytes.Buffer
	feed(t, Options{Out: &out, JSON: true}, hostile())
	if bad := steered(out.String()); bad != "" {
		t.Errorf("JSON lines: %q in\n%s", bad, out.String())
	}
	var back []record.Event
	if _, err := Read("lines", &out, func(e record.Event) error { back = append(back, e); return nil }); err != nil {
		t.Fatal(err)
	}
	valid := strings.ToValidUTF8(evil, "\ufffd") // JSON has no other bytes
	if len(back) != len(hostile()) || back[0].Endpoint != valid || back[0].Details.Get(valid) != valid {
		t.Errorf("%d lines tell something else: %q %q", len(back), back[0].Endpoint, back[0].Details)
	}
}

// fill makes every text in a value hostile, keys of maps too.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic("a kind that a summary did not have: " + v.Kind().String())
	}
}

// A recording's summary may have hostile text in every field.
func TestSummarySteersNothing(t *testing.T) {
	t.Parallel()
	var s Summary
	fill(reflect.ValueOf(&s).Elem())
	s.Expectations[0].OK, s.IndexLag[0].Missing, s.IndexLag[0].Excuse = false, 5, evil
	var before Summary
	fill(reflect.ValueOf(&before).Elem())
	before.Expectations[0].OK, before.IndexLag[0].Missing = false, 5
	var out bytes.Buffer
	if err := s.Write(&out, false, 0); err != nil {
		t.Fatal(err)
	}
	if bad := steered(out.String()); bad != "" {
		t.Errorf("%q in\n%s", bad, out.String())
	}
	if d := cmp.Diff(before, s); d != "" {
		t.Errorf("printing changed the summary: %s", d)
	}
}

// The output is the same for all divisions of a text into writes, controls no terminal, and keeps lines and tabs. A
// JSON text keeps its value.
func TestPrintableWriter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringOf(rapid.RuneFrom([]rune(evil+"\t ü世")))).Draw(t, "text") + "."
		var whole, cut bytes.Buffer
		if _, err := terminal.PrintableWriter(&whole).Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		w, r := terminal.PrintableWriter(&cut), iotest.OneByteReader(strings.NewReader(text))
		one := make([]byte, 1)
		for n, err := r.Read(one); err == nil; n, err = r.Read(one) {
			if m, err := w.Write(one[:n]); m != n || err != nil {
				t.Fatalf("%d of %d, %v", m, n, err)
			}
		}
		if whole.String() != cut.String() {
			t.Fatalf("whole %q, cut %q", whole.String(), cut.String())
		}
		if bad := strings.ReplaceAll(steered(whole.String()), "\t", ""); bad != "" {
			t.Fatalf("%q of %q", bad, text)
		}
		want, err := json.Marshal(strings.ToValidUTF8(text, "\ufffd"))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		whole.Reset()
		_, _ = terminal.PrintableWriter(&whole).Write(want)
		if err := json.Unmarshal(whole.Bytes(), &got); err != nil || got != strings.ToValidUTF8(text, "\ufffd") {
			t.Fatalf("%q became %q: %v", want, got, err)
		}
	})
}
