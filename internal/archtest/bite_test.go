package archtest

import "testing"

// The rules find violations.
func TestRulesBite(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"core/epp/stream", "core/wire/held", true},
		{"core/epp/stream", "report", false},
		{"core/epp/stream", "internal/exit", false},
		{"virtual", "core/modelserver/engine", true},
		{"virtual", "live/epp", false},
		{"live/epp", "virtual", false},
		{"live/epp", "live/envoy", false},
		{"live/epp/wire", "live/epp", true},
		{"live/kvmanager", "live/kvevents", true},
		{"live/stack", "live/envoy", true},
		{"live/stack", "virtual", false},
		{"report", "scenario", false},
		{"scenario", "core/modelserver/latency", true},
		{"web", "live/stack", false},
		{"cmd/windtunnel", "virtual", true},
		{"live/epp", "cmd/windtunnel", false},
		{"internal/exit", "core/record", false},
	} {
		if got := mayImport(layerOf(c.from), c.from, c.to); got != c.ok {
			t.Errorf("%s imports %s: allowed is %v, expected %v", c.from, c.to, got, c.ok)
		}
	}
	if layerOf("elsewhere") != nil {
		t.Error("a directory outside the repository has a layer")
	}
	for path, ok := range map[string]bool{
		"fmt": true, "time": true, "net/url": true, "net/http": false, "net": false, "os/exec": false,
		"log/slog": false, "sync/atomic": false,
		"math/rand/v2": false, "math/bits": true, "google.golang.org/grpc": false,
		"google.golang.org/protobuf/encoding/protowire": true,
		"github.com/cespare/xxhash/v2":                  true, "github.com/hashicorp/golang-lru/v2": false,
	} {
		if reason := coreMayNot(path); (reason == "") != ok {
			t.Errorf("core imports %s: allowed is %v (%s), expected %v", path, reason == "", reason, ok)
		}
	}
}
