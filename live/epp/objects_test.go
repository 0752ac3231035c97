package epp

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

const manifests = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: sim}
spec: {selector: {matchLabels: {app: sim}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}
---
apiVersion: v1
kind: Pod
metadata: {name: w1, labels: {app: sim}}
status: {podIP: 127.0.0.1, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: batch}
spec: {priority: -1, poolRef: {name: sim}}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: rw}
spec: {poolRef: {name: sim}, rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: m-v2}]}]}
`

// Without a configuration and without a cluster: the objects are files, and
// what happens to the files happens to the pool.
func TestObjectsAreFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pool.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
	write(manifests)
	log := &lockedBuffer{}
	s, err := StartStandalone(
		StandaloneOptions{PoolOptions: PoolOptions{PoolName: "sim", Namespace: "default", Objects: dir},
			Serving:       Serving{Address: "127.0.0.1:0", HealthAddress: "127.0.0.1:0"},
			PickerOptions: PickerOptions{Log: slog.New(slog.NewTextHandler(log, nil))},
			Picking:       PickingOptions{Config: core.Config{Stream: stream.Config{Errors: stream.EPPErrors}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	conn, err := grpc.NewClient(s.HealthAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(objective string) (string, string) {
		x := s.Picking().testAsk(context.Background(), chatHead("1", "x-llm-d-inference-objective", objective), hello)
		if x.answer != nil {
			return string(x.answer.Body), ""
		}
		x.leave()
		return x.endpoint, x.body
	}
	healthy := func() bool {
		r, err := healthv1.NewHealthClient(conn).Check(context.Background(),
			&healthv1.HealthCheckRequest{Service: ServiceName})
		return err == nil && r.Status == healthv1.HealthCheckResponse_SERVING
	}
	if to, body := ask(""); to != "127.0.0.1:8000" || !strings.Contains(body, `"m-v2"`) || !healthy() {
		t.Fatalf("went to %q with %s", to, body)
	}
	if got, _ := ask("batch"); !strings.Contains(got, "ResourceExhausted") { // nothing was scraped: full
		t.Errorf("a negative priority got %q", got)
	}
	write(strings.Replace(manifests, "priority: -1", "priority: 1", 1))
	eventually.Is(t, "the objective is raised", func() bool { got, _ := ask("batch"); return got == "127.0.0.1:8000" })
	write(strings.Replace(manifests, "number: 8000", "number: [", 1))
	eventually.Is(t, "the file that is wrong is told of",
		func() bool { return strings.Contains(log.String(), "the changed files have an error") })
	if got, _ := ask(""); got != "127.0.0.1:8000" {
		t.Errorf("after a file that is wrong: %q", got)
	}
	write(strings.Replace(manifests, "number: 8000", "number: 8001", 1))
	eventually.Is(t, "the port is changed", func() bool { got, _ := ask(""); return got == "127.0.0.1:8001" })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the pool is gone",
		func() bool { got, _ := ask(""); return strings.Contains(got, "ServiceUnavailable") && !healthy() })
	write(manifests)
	eventually.Is(t, "the pool is back", func() bool { got, _ := ask(""); return got == "127.0.0.1:8000" && healthy() })
	s.Lead(false)
	if got, _ := ask(""); healthy() || got != "127.0.0.1:8000" {
		t.Errorf("while another replica leads it is healthy, or does not serve: %q", got)
	}
	s.Lead(true)
	if !healthy() {
		t.Error("it leads and is not healthy")
	}
}
