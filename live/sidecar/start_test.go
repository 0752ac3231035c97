package sidecar

import (
	"net"
	"strings"
	"testing"
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
