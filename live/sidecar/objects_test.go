package sidecar

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pool is the InferencePool of that name among Kubernetes objects: its ready
// pods may be named, by address and by name, and others not, as the objects
// change.
func TestPoolAmongObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake := startWorker(t, false, prefilled)
	write := func(role string, k *worker) {
		t.Helper()
		text := fmt.Sprintf(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: chat, namespace: prod}
spec:
  selector: {matchLabels: {role: %s}}
  targetPorts: [{number: %s}]
  endpointPickerRef: {name: epp, port: {number: 9002}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod-a, namespace: prod, labels: {role: prefill}}
status: {podIP: 127.0.0.1, conditions: [{type: Ready, status: "True"}]}
`, role, port(k))
		if err := os.WriteFile(filepath.Join(dir, "pool.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, func(r *rig, o *Options) {
		o.Protect, o.Objects, o.Namespace, o.PoolName = true, dir, "prod", "chat"
		write("prefill", r.prefill)
	})
	status := func(host string) int {
		resp, _ := r.ask(chatBody, "x-prefiller-host-port", host)
		return resp.StatusCode
	}
	for host, want := range map[string]int{r.prefill.addr(): 200, "pod-a:" + port(r.prefill): 200, fake.addr(): 403,
		"pod-b:" + port(r.prefill): 403} {
		if got := status(host); got != want {
			t.Errorf("%s: %d, expected %d", host, got, want)
		}
	}
	if fake.calls() != 0 {
		t.Error("a server outside the pool was called")
	}
	write("prefill", fake)
	until(t, "the other port is taken over", func() bool { return status(fake.addr()) == 200 })
	write("nobody", r.prefill)
	until(t, "a pool without pods allows nobody", func() bool { return status(r.prefill.addr()) == 403 })
	if !strings.Contains(r.logged(), "allowlist_updated") {
		t.Error(r.logged())
	}
}

// Document 003's troubleshooting: a pool of another name allows nobody, and the
// log says which was looked for; pods without the prefill label are in the pool
// and prefill for nobody who names none.
func TestPoolOfAnotherName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := func(pool, role, of string) {
		t.Helper()
		text := fmt.Sprintf(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %s, namespace: prod}
spec:
  selector: {matchLabels: {app: vllm}}
  targetPorts: [{number: %s}]
  endpointPickerRef: {name: epp, port: {number: 9002}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod-a, namespace: prod, labels: {app: vllm, llm-d.ai/role: %s}}
status: {podIP: 127.0.0.1, conditions: [{type: Ready, status: "True"}]}
`, pool, of, role)
		if err := os.WriteFile(filepath.Join(dir, "pool.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, func(r *rig, o *Options) {
		o.Protect, o.Objects, o.Namespace, o.PoolName = true, dir, "prod", "llama-70b-pool"
		set("llama-pool", "prefill", port(r.prefill))
	})
	status := func() int {
		resp, _ := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr())
		return resp.StatusCode
	}
	if got := status(); got != 403 || !strings.Contains(r.logged(), "no such InferencePool among the objects") ||
		!strings.Contains(r.logged(), "pool=llama-70b-pool") {
		t.Errorf("%d %s", got, r.logged())
	}
	set("llama-70b-pool", "prefil", port(r.prefill))
	until(t, "the pool's name matches", func() bool { return status() == 200 })
	if list := r.pool.known(); len(list) != 0 {
		t.Errorf("%v prefill without the label", list)
	}
	set("llama-70b-pool", "prefill", port(r.prefill))
	until(t, "the label is right", func() bool { return len(r.pool.known()) == 1 })
}
