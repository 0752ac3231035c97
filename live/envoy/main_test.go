//go:build unix

package envoy

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanHelperEnv) != "" {
		os.Exit(orphanHelper())
	}
	goleak.VerifyTestMain(m)
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
	return Config{Workers: 1, Pools: []Pool{{Name: "default", Picker: Processor{Addresses: []string{"127.0.0.1:9002"}}}}}
}

// eventually waits for a condition and fails the test when it does not come.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatal("waited 20 s for: " + what)
		case <-tick.C:
		}
	}
}

// idle waits until nothing is in flight at the gateway.
func idle(t *testing.T, p *Process) {
	t.Helper()
	eventually(t, "the gateway to be idle", func() bool {
		a, err := p.Active(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return a.Idle()
	})
}
