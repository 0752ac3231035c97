package modelserver

import (
	"net"
	"testing"
)

// A server that cannot begin anew listens nowhere.
func TestJoinThatFails(t *testing.T) {
	t.Parallel()
	s := start(t, fast()).Server
	s.Leave(t.Context())
	if err := s.Restart(); err != nil { // so that it cannot be restarted again
		t.Fatal(err)
	}
	if err := s.Join(); err == nil {
		t.Fatal("an engine that runs was restarted")
	}
	l, err := net.Listen("tcp", s.Address())
	if err != nil {
		t.Fatalf("its listener is open: %v", err)
	}
	l.Close()
	s.Leave(t.Context())
	if err := s.Join(); err != nil {
		t.Fatal(err)
	}
}
