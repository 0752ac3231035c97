package sidecar

import (
	"net"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// A sidecar that cannot start listens nowhere.
func TestStartThatFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	if s, err := Start(Options{Listen: at, Decoder: "127.0.0.1:1", Advertise: "not a host", Ranks: 1}); err == nil ||
		!strings.Contains(err.Error(), "not a host") {
		t.Fatalf("%v %v", s, err)
	}
	if l, err = net.Listen("tcp", at); err != nil {
		t.Fatalf("its listener is open: %v", err)
	}
	l.Close()
}

func TestDeprecatedConnectors(t *testing.T) {
	t.Parallel()
	for _, way := range []*connector.Connector{connector.NIXLv1, connector.LMCache, connector.NIXLv2} {
		r := start(t, func(_ *rig, o *Options) { o.Disagg.Connector = way })
		if warned := strings.Contains(r.logged(), "deprecated"); warned != (way != connector.NIXLv2) {
			t.Errorf("%s: %s", way.Name, r.logged())
		}
	}
}
