package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/pause"
)

// up tells programs where it listens, takes over an edited file, tells a mistake,
// and ends cleanly.
func TestUp(t *testing.T) {
	t.Parallel()
	port := free(t, 1)[0]
	file := filepath.Join(t.TempDir(), "all.yaml")
	manifests := func(path string) []byte {
		return fmt.Appendf(nil, `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: any, listeners: [{name: a, port: %s, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec: {parentRefs: [{name: g}], rules: [{matches: [{path: {value: %s}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: there.example.com}}]}]}
`, port, path)
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(file, manifests(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("/a")
	out, told := &locked{}, &locked{}
	o := theOutside()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, told, false, 0
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	code := make(chan int, 1)
	go func() { code <- run([]string{"up", "-f", file, "--output", "json"}, o) }()
	await := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			select {
			case c := <-code:
				t.Fatalf("it ended with %d before %s:\n%s", c, what, told.String())
			default:
				pause.For(t.Context(), 10*time.Millisecond)
			}
		}
	}
	var at struct{ Listeners []struct{ URL string } }
	await("the addresses", func() bool { return json.NewDecoder(bytes.NewBufferString(out.String())).Decode(&at) == nil })
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	status := func(path string) int {
		resp, err := client.Get(at.Listeners[0].URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if !strings.HasSuffix(at.Listeners[0].URL, ":"+port) || status("/a") != http.StatusFound {
		t.Errorf("%+v: /a: %d", at, status("/a"))
	}
	write("/b")
	await("the edited file", func() bool { return status("/b") == http.StatusFound })
	write("b")
	await("the mistake", func() bool { return strings.Contains(told.String(), "what was in force stays") })
	if got := status("/b"); got != http.StatusFound {
		t.Errorf("after the mistake: %d", got)
	}
	stop()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d:\n%s", c, told.String())
	}
}
