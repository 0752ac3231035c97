package terminal

import (
	"slices"
	"strings"
	"testing"
)

// On a narrow terminal a step's details continue on the next line, undivided. Colours have no width.
func TestWrap(t *testing.T) {
	head, hang := strings.Repeat("h", 20), strings.Repeat(" ", 12)
	words := []string{"bytes=270", "\x1b[2mpath=\x1b[0m/v1", "boundary=windtunnel"}
	for columns, want := range map[int]string{
		0:  head + "  bytes=270  \x1b[2mpath=\x1b[0m/v1  boundary=windtunnel",
		80: head + "  bytes=270  \x1b[2mpath=\x1b[0m/v1  boundary=windtunnel",
		41: head + "  bytes=270  \x1b[2mpath=\x1b[0m/v1\n" + hang + "boundary=windtunnel",
		40: head + "  bytes=270\n" + hang + "\x1b[2mpath=\x1b[0m/v1\n" + hang + "boundary=windtunnel",
		24: head + "\n" + hang + "bytes=270\n" + hang + "\x1b[2mpath=\x1b[0m/v1\n" + hang + "boundary=win\n" + hang +
			"dtunnel",
	} {
		if got := WrapWords(head, words, "  ", len(hang), columns); got != want {
			t.Errorf("%d columns:\n%q, expected\n%q", columns, got, want)
		}
	}
	if got := WrapWords("prefill_finished   ", nil, "  ", 12, 80); got != "prefill_finished" {
		t.Errorf("%q", got)
	}
}

// A word longer than a line is broken behind a comma, and never in a number.
func TestPieces(t *testing.T) {
	for word, want := range map[string][]string{
		"short":                       {"short"},
		"headers=x-one,x-two,x-three": {"headers=x-", "one,x-two,", "x-three"},
		"a=123.456.789b":              {"a=", "123.456.78", "9b"},
		"abcdefg123456":               {"abcdefg", "123456"},
		"12345678901234":              {"1234567890", "1234"},
		"\x1b[2mkey=\x1b[0mvalue\x1b[31mé7\x1b[0m": {"\x1b[2mkey=\x1b[0mvalue\x1b[31mé", "7\x1b[0m"},
	} {
		if got := pieces(word, 10); !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q, expected %q", word, got, want)
		}
	}
}
