package report

import (
	"strings"
	"testing"
)

// On a narrow terminal a step's details go on in the next line, whole;
// colours count for nothing.
func TestWrap(t *testing.T) {
	head := strings.Repeat("h", 20)
	words := []string{"bytes=270", "\x1b[2mpath=\x1b[0m/v1", "boundary=windtunnel"}
	for columns, want := range map[int]string{
		0:  head + "  bytes=270  \x1b[2mpath=\x1b[0m/v1  boundary=windtunnel",
		80: head + "  bytes=270  \x1b[2mpath=\x1b[0m/v1  boundary=windtunnel",
		41: head + "  bytes=270  \x1b[2mpath=\x1b[0m/v1\n" + hang + "boundary=windtunnel",
		40: head + "  bytes=270\n" + hang + "\x1b[2mpath=\x1b[0m/v1\n" + hang + "boundary=windtunnel",
	} {
		if got := wrap(head, words, columns); got != want {
			t.Errorf("%d columns:\n%q, expected\n%q", columns, got, want)
		}
	}
	if got := wrap("prefill_finished   ", nil, 80); got != "prefill_finished" {
		t.Errorf("%q", got)
	}
}
