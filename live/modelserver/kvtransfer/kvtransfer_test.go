package kvtransfer

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/live/serve"
)

// A side channel whose listener dies is no secret; one that is closed is none.
func TestDeadListenerIsReported(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{true, false} {
		g := serve.Group{Log: slog.New(slog.DiscardHandler)}
		e := New(t.Context(), nil, Options{Announced: &g, Log: g.Log})
		if err := e.side.open("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if !dies {
			e.Close()
			g.Wait()
			select {
			case err := <-g.Failed():
				t.Errorf("it was told to close: %v", err)
			default:
			}
			continue
		}
		if err := e.side.listener.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-g.Failed(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		g.Wait()
	}
}

// A side channel on the server's own address has the host that the server gives to others, and another one its own.
func TestAnnouncedHost(t *testing.T) {
	t.Parallel()
	for listens, want := range map[string]string{"": "10.9.9.9", "127.0.0.1:0": "10.9.9.9",
		"127.0.0.2:0": "127.0.0.2"} {
		g := serve.Group{Log: slog.New(slog.DiscardHandler)}
		e := New(t.Context(), nil, Options{Announced: &g, Log: g.Log, Profile: &link.Profile{}, ListenHost: "127.0.0.1",
			SideChannel: listens})
		if err := e.Open("10.9.9.9"); err != nil {
			t.Fatal(err)
		}
		if host, port, err := e.Address(); host != want || port == 0 || err != nil {
			t.Errorf("%q: %s:%d, %v; expected %s", listens, host, port, err, want)
		}
		e.Close()
		g.Wait()
	}
}
