package testagent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
	"github.com/windtunnel/windtunnel/kubernetes/testagent"
	"github.com/windtunnel/windtunnel/kubernetes/testcluster"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// namespace is that of the release.
const namespace = "fresh"

// chart returns what the chart renders for its own Gateway, in the release's namespace.
func chart(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../test/chart/testdata/gateway.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "\n  - name: https\n") // whose certificate is the user's
	_, after, found := strings.Cut(rest, "\n---")
	if !found {
		t.Fatal("the Gateway has no listener for HTTPS")
	}
	return strings.NewReplacer("namespace: default", "namespace: "+namespace, "namespace=default",
		"namespace="+namespace, "default-demo", namespace+"-demo", "demo-gateway.default", "demo-gateway."+namespace).
		Replace(before + "\n---" + after)
}

// The chart, in a fresh namespace of a real API server, answers a request through its own Gateway, picker and model
// servers, each with the rights that the chart gives it. An upgrade replaces every picker and server while requests are
// in flight, and loses none.
func TestInstallAndUpgrade(t *testing.T) {
	c := testcluster.Start(t)
	proxy, err := envoy.Find(t.Context(), envoy.FindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k8s := filepath.Join(testcluster.Programs(t), "windtunnel-k8s")
	c.CreateCRDs(t)
	c.Create(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
	agent := &testagent.Agent{Client: c.Client, Namespace: namespace, Kubeconfig: c.KubeconfigOf,
		Images: map[string]string{"ghcr.io/windtunnel/windtunnel-k8s:v0.0.0": k8s},
		Files:  map[string]string{"/usr/local/bin/envoy": proxy.Path}}
	agent.Start(t)
	before, began := chart(t), time.Now()
	c.Create(t, before)
	address := ""
	eventually.Is(t, "the Gateway's pod is ready", func() bool {
		for _, p := range pods(t, c) {
			if p.Labels["windtunnel/part"] == "demo-gateway" && ready(&p) {
				address = net.JoinHostPort(p.Status.PodIP, "80")
			}
		}
		return address != ""
	})
	eventually.Is(t, "a request is answered", func() bool { return ask(t.Context(), address, 1) == nil })
	t.Logf("from the creation of the chart's objects to the first answer: %.1f s", time.Since(began).Seconds())

	after := strings.NewReplacer("- --tensor-parallel-size=1", "- --tensor-parallel-size=1\n        - --max-num-seqs=64",
		`windtunnel/config: "`, `windtunnel/config: "2`, "{pluginRef: queue-scorer, weight: 2}",
		"{pluginRef: queue-scorer, weight: 4}").Replace(before)
	eventually.Is(t, "the first release is there", func() bool { return rolledOut(t, c) })
	old := map[string]bool{}
	for _, p := range pods(t, c) {
		old[p.Name] = p.Labels["windtunnel/part"] != "demo-gateway"
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	answered, lost := 0, []error{}
	for range 16 {
		clients.Go(func() {
			for ctx.Err() == nil {
				err := ask(t.Context(), address, 50)
				mu.Lock()
				if answered++; err != nil {
					lost = append(lost, err)
				}
				mu.Unlock()
			}
		})
	}
	upgrade(t, c, after)
	eventually.Is(t, "the second release is there, and nothing of the first one", func() bool {
		for _, p := range pods(t, c) {
			if old[p.Name] {
				return false
			}
		}
		return rolledOut(t, c)
	})
	stop()
	clients.Wait()
	t.Logf("%d requests during the upgrade", answered)
	if len(lost) > 0 {
		t.Errorf("%d of %d requests were lost, the first by: %v", len(lost), answered, lost[0])
	}
}

// ask sends a request for so many tokens, and returns an error unless all of them come.
func ask(ctx context.Context, address string, tokens int) error {
	body := fmt.Sprintf(`{"model":"meta-llama/Llama-3.1-8B-Instruct","prompt":"Hello","max_tokens":%d,"ignore_eos":true}`,
		tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if want := fmt.Sprintf(`"completion_tokens":%d`, tokens); err == nil && !strings.Contains(string(text), want) {
		err = fmt.Errorf("%s: %.300s; expected %s", resp.Status, text, want)
	}
	return err
}

func pods(t *testing.T, c *testcluster.Cluster) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := c.Client.Do(t.Context(), http.MethodGet, apiclient.At("pods", namespace), nil, &list); err != nil ||
		t.Failed() { // the agent has reported what is wrong
		t.Fatal(err)
	}
	return list.Items
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// rolledOut reports whether every Deployment has its replicas, all available and of its last template.
func rolledOut(t *testing.T, c *testcluster.Cluster) bool {
	t.Helper()
	var list appsv1.DeploymentList
	if err := c.Client.Do(t.Context(), http.MethodGet, apiclient.At("deployments", namespace), nil, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if s := &d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas < *d.Spec.Replicas ||
			s.AvailableReplicas < *d.Spec.Replicas || s.Replicas > *d.Spec.Replicas {
			return false
		}
	}
	return true
}

// upgrade changes Deployments and ConfigMaps, as helm upgrade does.
func upgrade(t *testing.T, c *testcluster.Cluster, text string) {
	t.Helper()
	for one := range strings.SplitSeq("\n"+text, "\n---") {
		var x map[string]any
		if err := yaml.Unmarshal([]byte(one), &x); err != nil {
			t.Fatal(err)
		}
		kind := map[any]string{"Deployment": "deployments", "ConfigMap": "configmaps"}[x["kind"]]
		if meta, is := x["metadata"].(map[string]any); is && kind != "" {
			if err := c.Client.Do(t.Context(), http.MethodPatch, apiclient.At(kind, namespace, fmt.Sprint(meta["name"])),
				x, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}
