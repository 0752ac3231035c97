package header_test

import (
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/header"
)

// Of several with one name the last counts, however the names are written.
func TestLastCounts(t *testing.T) {
	l := header.Of("X-Session-Id", "old", "accept", "*/*", "x-session-id", "", ":path", "/v1")
	for name, want := range map[string]string{"x-session-id": "", "X-SESSION-ID": "", "Accept": "*/*", ":path": "/v1"} {
		if got, there := l.Lookup(name); got != want || !there || l.Get(name) != want {
			t.Errorf("%s is %q (%v), expected %q", name, got, there, want)
		}
	}
	if v, there := l.Lookup("x-session-ie"); there {
		t.Errorf("a header that did not come is %q", v)
	}
	if got, want := l.Normalize(), header.Of("x-session-id", "", "accept", "*/*", ":path", "/v1"); !slices.Equal(got, want) {
		t.Errorf("normalized: %v, expected %v", got, want)
	}
	if l[0].Name != "X-Session-Id" || l[0].Value != "old" {
		t.Errorf("Normalize changed the list that it was given: %v", l)
	}
}

// A map's headers come in one order, or a run could not be repeated.
func TestFromMap(t *testing.T) {
	if got, want := header.FromMap(map[string]string{"b": "2", "a": "1", "c": "3"}), header.Of("a", "1", "b", "2", "c", "3"); !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}
