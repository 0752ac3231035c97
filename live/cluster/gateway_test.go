package cluster

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/windtunnel/windtunnel/live/envoy/xds"
)

// Envoy gets another free port if another program has taken the first one meanwhile. A port that was asked for, and any
// other refusal, is given once.
func TestListenFree(t *testing.T) {
	t.Parallel()
	taken := &xds.RejectedError{Reason: "cannot bind '127.0.0.1:1': Address already in use\n"}
	other := &xds.RejectedError{Reason: "no such cluster"}
	fixed, err := FreePort(netip.MustParseAddrPort(AnyPort), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at      string
		answers []error
		want    error
	}{
		{AnyPort, []error{nil}, nil},
		{AnyPort, []error{taken, taken, nil}, nil},
		{AnyPort, []error{taken, taken, taken, taken, taken, taken, taken, taken, taken, taken}, taken},
		{AnyPort, []error{other}, other},
		{fixed, []error{taken}, taken},
	} {
		asked := 0
		err := ListenFree(netip.MustParseAddrPort(c.at), "", func(address string) error {
			if at, err := netip.ParseAddrPort(address); err != nil || at.Port() == 0 {
				t.Errorf("%s: Envoy is to listen on %s", c.at, address)
			}
			asked++
			return c.answers[asked-1]
		})
		if !errors.Is(err, c.want) || asked != len(c.answers) {
			t.Errorf("%s, %v: asked %d times, %v", c.at, c.answers, asked, err)
		}
	}
}
