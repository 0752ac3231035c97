package cachedir

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A proxy that answers nothing ends an installation before the installers, which would wait for minutes; one that
// answers anything, or refuses connections, leaves it to them.
func TestSilentProxy(t *testing.T) {
	for what, answer := range map[string]string{"silent": "", "a proxy": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"gone": "none"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = c.Write([]byte(answer))
			}
		}()
		if answer == "none" {
			l.Close()
		}
		t.Setenv("PIP_PROXY", "http://user:secret@"+l.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if what == "silent" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		}
		tried := false
		x := Install{Root: t.TempDir(), There: func(context.Context) bool { return false }, Begins: func() {},
			Installers: func(string, string) []Installer { tried = true; return nil }}
		x.Final = filepath.Join(x.Root, "final")
		err = x.Run(ctx)
		cancel()
		l.Close()
		if silent := what == "silent"; tried == silent || silent != strings.Contains(err.Error(),
			"the proxy "+l.Addr().String()+" (HTTPS_PROXY) accepts connections and answers nothing") {
			t.Errorf("%s: installers tried: %t; %v", what, tried, err)
		}
	}
}
