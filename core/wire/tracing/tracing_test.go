package tracing

import (
	"strings"
	"testing"
)

// What the standard's examples say is read, and nothing else.
func TestParse(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for text, sampled := range map[string]bool{good: true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00":            false,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-what-comes": true} {
		c, ok := Parse(text)
		if !ok || c.Sampled != sampled {
			t.Errorf("%s: %+v %v", text, c, ok)
		}
		if want := "00" + text[2:52]; c.String()[:52] != want {
			t.Errorf("%s becomes %s", text, c)
		}
	}
	for _, bad := range []string{"", "00", good + "-x", "ff" + good[2:], strings.ToUpper(good),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
		"0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		if c, ok := Parse(bad); ok {
			t.Errorf("%q is %+v", bad, c)
		}
	}
}

// A part continues the trace that came in with its own span, and begins the client's where
// none did; runs are apart.
func TestNext(t *testing.T) {
	a, b := &IDs{Salt: 1, Share: 1}, &IDs{Salt: 2}
	c, _ := Parse(a.Next("", "r", Client))
	if c.Trace != a.Trace("r", Client) || c.Span != a.Span("r", Client) || !c.Sampled {
		t.Errorf("the client's is %s", c)
	}
	d, _ := Parse(b.Next(c.String(), "r", Gateway(1)))
	if d.Trace != c.Trace || d.Span != b.Span("r", "1/epp/gateway.request") || !d.Sampled {
		t.Errorf("%s follows %s", d, c)
	}
	if e, _ := Parse(b.Next("nonsense", "r", Gateway(1))); e.Trace == c.Trace || e.Sampled {
		t.Errorf("%s is not a trace of its own, unsampled", e)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := Parse(text); ok {
			if again, ok := Parse(c.String()); !ok || again != c {
				t.Fatal(text, c)
			}
		}
	})
}
