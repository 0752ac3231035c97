package modelserver

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParsePeers(t *testing.T) {
	t.Parallel()
	own := func(a netip.Addr) bool { return a.String() == "198.51.100.3" }
	for _, c := range []struct {
		list      string
		yes, no   []string
		isRefused bool
	}{
		{list: "", yes: []string{"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1", "198.51.100.3"},
			no: []string{"192.0.2.1", "169.254.169.254", "0.0.0.0", "::", "decode-0", "2130706433", "0x7f.1", "127.1",
				"", "localhost.example.com", "127.0.0.1.example.com"}},
		{list: "10.244.0.0/16 10.0.0.7 fd00::/8", yes: []string{"10.244.1.1", "10.0.0.7", "::ffff:10.0.0.7", "fd00::7"},
			no: []string{"127.0.0.1", "localhost", "198.51.100.3", "10.0.0.8", "10.245.0.1", "::1"}},
		{list: "prefill-0 local", yes: []string{"prefill-0", "127.0.0.1"}, no: []string{"prefill-1", "192.0.2.1"}},
		{list: "any", yes: []string{"192.0.2.1", "whoever"}},
		{list: "10.0.0.0/40", isRefused: true}, {list: "http://a", isRefused: true},
		{list: "10.0.0.1:80", isRefused: true}, {list: ",", isRefused: true},
	} {
		p, err := ParsePeers(strings.Fields(c.list))
		if (err != nil) != c.isRefused {
			t.Errorf("%q: %v", c.list, err)
		}
		for _, host := range c.yes {
			if !p.allow(host, own) {
				t.Errorf("%q: %s is refused", c.list, host)
			}
		}
		for _, host := range c.no {
			if p.allow(host, own) {
				t.Errorf("%q: %s is allowed", c.list, host)
			}
		}
	}
}
