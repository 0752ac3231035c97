package header_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/wire/header"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
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
	if got, want := l.Normalize(),
		header.Of("x-session-id", "", "accept", "*/*", ":path", "/v1"); !slices.Equal(got, want) {
		t.Errorf("normalized: %v, expected %v", got, want)
	}
	if l[0].Name != "X-Session-Id" || l[0].Value != "old" {
		t.Errorf("Normalize changed the list that it was given: %v", l)
	}
}

// A map's headers come in one order, or a run could not be repeated.
func TestFromMap(t *testing.T) {
	if got, want := header.FromMap(map[string]string{"b": "2", "a": "1", "c": "3"}),
		header.Of("a", "1", "b", "2", "c", "3"); !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

// However many headers there are, they are those of the plain definition: the
// first place, the last value. An index finds what is in the list.
func TestNormalizeIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"X", "x"}).Draw(t, "case"),
				rapid.IntRange(0, 90).Draw(t, "n"))
		})
		var l, want header.List
		for i, n := range rapid.SliceOfN(name, 0, 200).Draw(t, "names") {
			h := header.Header{Name: n, Value: fmt.Sprint(i)}
			l = append(l, h)
			h.Name = strings.ToLower(n)
			if at := slices.IndexFunc(want, func(w header.Header) bool { return w.Name == h.Name }); at >= 0 {
				want[at].Value = h.Value
			} else {
				want = append(want, h)
			}
		}
		got := l.Normalize()
		if !slices.Equal(got, want) {
			t.Fatalf("%v, expected %v", got, want)
		}
		x := got.Index()
		for n := range 100 {
			name := fmt.Sprint("x-", n)
			if _, there := got.Lookup(name); x.Has(name) != there {
				t.Fatalf("%s: found %v", name, x.Has(name))
			}
		}
	})
}

// dozen returns the usual headers of a request.
func dozen() (l header.List) {
	for i := range 12 {
		l = append(l, header.Header{Name: fmt.Sprint("x-header-", i), Value: "v"})
	}
	return l
}

// A list with the usual dozen headers allocates the list and no map.
func TestAFewHeadersCostNoMap(t *testing.T) {
	l := dozen()
	if n := testing.AllocsPerRun(100, func() { l.Normalize() }); n > 1 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if x := l.Index(); x.Has("x") {
			t.Error("found")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNormalize(b *testing.B) {
	for _, n := range []int{12, 32, 100, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var l header.List
			for i := range n {
				l = append(l, header.Header{Name: fmt.Sprint("x-header-", i), Value: "v"})
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Normalize()
			}
		})
	}
}

func TestLower(t *testing.T) {
	for _, name := range []string{"x-request-id", "X-Request-ID", "Ü", ""} {
		if got := header.Lower([]byte(name)); got != strings.ToLower(name) {
			t.Errorf("%q is %q", name, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { header.Lower([]byte("content-type")) }); n > 0 {
		t.Errorf("a usual name takes memory %v times", n)
	}
}

// Credentials are known by the names of headers, and of fields in a query.
func TestSecrets(t *testing.T) {
	for _, name := range []string{"authorization", "Authorization", "X-My-Api-Key", "cookie",
		"Ocp-Apim-Subscription-Key", "private-token", "x-api-token"} {
		if !header.Secret(name) {
			t.Errorf("%s is told", name)
		}
	}
	for _, name := range []string{"content-type", "x-request-id", "accept", "x-session-token", "idempotency-key",
		"x-max-tokens"} {
		if header.Secret(name) {
			t.Errorf("%s is not told", name)
		}
	}
	for value, want := range map[string]string{
		"/v1/chat?n=1&key=S&&x=":                       "/v1/chat?n=1&key=&&x=",
		"/v1?API-Key=S":                                "/v1?API-Key=",
		"/v1?api%2Dkey=S&a%zz=S":                       "/v1?api%2Dkey=&a%zz=",
		"https://a/b?X-Amz-Signature=S&access_token=S": "https://a/b?X-Amz-Signature=&access_token=",
		"/v1?monkey=1&key":                             "/v1?monkey=1&key",
		"key=1":                                        "key=1",
		"":                                             "",
	} {
		if got := header.Open(value); got != want {
			t.Errorf("%q is told as %q, expected %q", value, got, want)
		}
	}
}
