//go:build unix

package envoy

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanHelperEnv) != "" {
		os.Exit(orphanHelper())
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/windtunnel/windtunnel/internal/child.startChildren"))
}

// realEnvoy is the Envoy that a user of this machine would get.
var realEnvoy = sync.OnceValues(func() (Binary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return Find(ctx, FindOptions{})
})

func envoyForTest(t *testing.T) Binary {
	t.Helper()
	bin, err := realEnvoy()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// startEnvoy starts the real one, and on failure shows where its log is kept.
func startEnvoy(t *testing.T, c Config) *Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "windtunnel-envoy-*")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), envoyForTest(t), c, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log("Envoy's files are kept in", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return p
}

// onePool is the smallest useful Config, with a picker that need not exist.
func onePool() Config {
	return Config{Workers: 1,
		Pools: []Pool{{Name: "default", Picker: Processor{Addresses: []string{"127.0.0.1:9002"}}}}}
}

// idle waits until nothing is in flight at the gateway.
func idle(t *testing.T, p *Process) {
	t.Helper()
	eventually.Is(t, "the gateway to be idle", func() bool {
		a, err := p.Active(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return a.Idle()
	})
}
