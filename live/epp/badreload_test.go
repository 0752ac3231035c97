package epp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// badEndpoints returns endpoints files that a configuration may name by mistake, each with the error about it.
func badEndpoints(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	entry := filepath.Join(dir, "entry.yaml")
	if err := os.WriteFile(entry,
		[]byte("endpoints:\n- {name: a, address: 127.0.0.1, port: \"1\"}\n- {name: b, address: nowhere, port: "+
			"\"1\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		filepath.Join(dir, "missing.yaml"):         "no such file",
		filepath.Join(dir, "nowhere", "some.yaml"): "no such file",
		dir:   "is a directory",
		entry: "entry.yaml:3:22: endpoints[1].address",
	}
}

// A configuration whose endpoints cannot be read does not start a picker, and
// says why.
func TestStartWithBadEndpoints(t *testing.T) {
	t.Parallel()
	for path, want := range badEndpoints(t) {
		text := strings.NewReplacer("SCORER", "queue-scorer", "ENDPOINTS", path).Replace(reloadable)
		s, err := StartStandalone(
			StandaloneOptions{PickerOptions: PickerOptions{Config: []byte(text), ConfigName: "epp.yaml"},
				PoolOptions: PoolOptions{PoolName: "pool"}, Serving: Serving{Address: "127.0.0.1:0"}})
		if err == nil {
			s.Kill()
			t.Errorf("%s: started", path)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, want %q", path, err, want)
		}
	}
}

// An edit that names such endpoints, or a plug-in that panics while it is made, is refused and reported. The old
// configuration stays, and with it the request that it holds.
func TestReloadWithBadEndpointsUnderAHeldRequest(t *testing.T) {
	t.Parallel()
	broken := plugins.Builtin()
	broken["broken-scorer"] = picker.Registration{
		New: func(*picker.Builder, string, picker.Params) (picker.Plugin, error) { panic("no weights") }}
	r := startReloadable(t, func(o *StandaloneOptions) { o.Registry = broken })
	held := r.generations.testAsk(t.Context(), chat(1), hello)
	old := r.Picking()

	bad := badEndpoints(t)
	edits := map[string]string{r.config("broken-scorer"): "no weights"}
	for path, want := range bad {
		edits[strings.ReplaceAll(r.config("queue-scorer"), r.endpoints, path)] = want
	}
	for text, want := range edits {
		before := len(r.log.String())
		r.write(r.path, text)
		until(t, "the refusal is told: "+want, func() bool {
			log := r.log.String()[before:]
			return strings.Contains(log, "the old state stays") && strings.Contains(log, want)
		})
		if r.Picking() != old {
			t.Fatalf("%s: a configuration that cannot be used is in force", want)
		}
	}
	held.respond(header.Of(":status", "200"), "{}")
	if r := held.s.Result(); r != stream.PassedThrough {
		t.Errorf("the held request: %v", r)
	}
	held.leave()
	if x := r.generations.testAsk(t.Context(), chat(2), hello); x.endpoint != "127.0.0.1:1" {
		t.Errorf("the old configuration does not serve: %+v", x.answer)
	} else {
		x.leave()
	}
	r.write(r.path, r.config("kv-cache-utilization-scorer"))
	until(t, "the next good edit is in force", r.has("kv-cache-utilization-scorer"))
	select {
	case <-old.idle:
	case <-time.After(time.Minute):
		t.Error("the old configuration never ended")
	}
}
