package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/scenario"
)

// everything says whether all targets and all clients run: make test has the model server alone, and the clients that
// are quick to install.
var everything = os.Getenv("WINDTUNNEL_CLIENTS") == "all"

// target is a server or stack for the clients.
type target struct {
	url     string   // the base of its API
	decodes []string // addresses of the servers that make answers
}

// targets are the model server, with both ways of batching, and whole stacks.
func targets() map[string]func(*testing.T) target {
	out := map[string]func(*testing.T) target{}
	for _, batching := range []engine.Batching{engine.BatchingIndependent, engine.BatchingContinuous} {
		out[fmt.Sprint(batching)] = func(t *testing.T) target { return target{url: serve(t, batching)} }
	}
	if everything {
		for name := range stacks {
			out[name] = func(t *testing.T) target { return play(t, name, "") }
		}
	}
	return out
}

// stacks are pools with an Envoy and an endpoint picker in front.
var stacks = map[string]string{
	"plain": "    flow: plain\n    replicas: 1\n",
	"held":  "    flow: held\n    replicas: 1\n",
	"prefill and decode": "    flow: plain\n    replicas: 1\n    sidecar: routing\n    disaggregation: " +
		"{prefillReplicas: 1}\n",
}

// play starts a stack, with more said of its model servers.
func play(t *testing.T, name, servers string) target {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if servers == "" {
		servers = "prefill: 1ms, interTokenLatency: 200us"
	}
	text := fmt.Sprintf("apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n  - name: default\n    model: "+
		"m\n%s    modelServer: {batching: continuous, storeResponses: true, %s}\n", stacks[name], servers)
	s, err := scenario.Parse(filepath.Join(here, "..", "testdata", "clients.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := stack.Start(ctx,
		stack.Options{Scenario: s, Recorder: record.Func(func(record.Event) {}), Dir: t.TempDir()})
	if err != nil {
		missing(t, "the stack does not start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := st.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	out := target{url: "http://" + st.Gateway.Addr + "/v1"}
	for i, e := range st.Pools[0].Endpoints {
		if !s.Pools[0].DeploymentOf(i).Prefills {
			out.decodes = append(out.decodes, e)
		}
	}
	return out
}
