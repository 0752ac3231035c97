package modelserver

import (
	"net"
	"net/http"
	"testing"
)

// A server that cannot start again, because its engine has ended, listens nowhere.
func TestJoinThatFails(t *testing.T) {
	t.Parallel()
	f, err := New(Options{Servers: []ServerOptions{fast()}})
	if err == nil {
		err = f.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	s := f.Servers()[0]
	defer func() { s.cancel(); s.kv.Close(); f.network.Stop(); f.serving.Wait() }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.URL() + "/health") // it serves
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.Leave(t.Context())
	s.engine.Stop()
	if err := s.Join(); err == nil {
		t.Fatal("an engine that has ended was restarted")
	}
	l, err := net.Listen("tcp", s.Address())
	if err != nil {
		t.Fatalf("its listener is open: %v", err)
	}
	l.Close()
}
