package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// world is a controller with a fake API server, and pods that all answer with one page.
type world struct {
	*fake.FakeDynamicClient
	t  *testing.T
	mu sync.Mutex // held between the reading and the writing of an object, which the fake server does not compare
}

// start creates objects, and begins a controller, which ends with the test.
func start(t *testing.T, with ...*unstructured.Unstructured) *world {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{pools: kindPool, models: kindModel, localModels: kindLocal,
		deployments: "Deployment", services: "Service", budgets: "PodDisruptionBudget", pods: "Pod"}
	lists := map[schema.GroupVersionResource]string{}
	for r, kind := range kinds {
		lists[r] = kind + "List"
	}
	w := &world{FakeDynamicClient: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), t: t}
	// As a real API server, the fake one takes nothing but the status from a writer of the status.
	w.PrependReactor("update", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "status" {
			return false, nil, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		x := a.(k8stesting.UpdateAction).GetObject().(*unstructured.Unstructured)
		now, err := w.Tracker().Get(a.GetResource(), x.GetNamespace(), x.GetName())
		if err != nil {
			return true, nil, err
		}
		next := now.(*unstructured.Unstructured).DeepCopy()
		next.Object["status"] = x.Object["status"]
		return true, next, w.Tracker().Update(a.GetResource(), next, x.GetNamespace())
	})
	pages := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(out, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 3\n")
	}))
	c := New(Options{Client: w, Images: Images{Own: ours}, Period: 50 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler)})
	c.pools.Client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", pages.Listener.Addr().String())
	}}
	for _, x := range with {
		for r, kind := range kinds {
			if kind != x.GetKind() {
				continue
			}
			_, err := w.Resource(r).Namespace(x.GetNamespace()).Create(t.Context(), x, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.pools.Client.CloseIdleConnections()
		pages.Close()
	})
	eventually.Is(t, "all watches", func() bool { // the fake server loses what changes before
		n := 0
		for _, a := range w.Actions() {
			if a.GetVerb() == "watch" {
				n++
			}
		}
		return n == 2*len(kinds) // each is tried first
	})
	return w
}

func (w *world) get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	x, err := w.Resource(r).Namespace("llm-serving").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return &unstructured.Unstructured{Object: dict{}}
	}
	return x
}

func (w *world) change(r schema.GroupVersionResource, name string, value any, path ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.get(r, name)
	err := unstructured.SetNestedField(x.Object, value, path...)
	if err == nil {
		_, err = w.Resource(r).Namespace("llm-serving").Update(context.Background(), x, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) replicas(name string) int64 {
	n, _, _ := unstructured.NestedInt64(w.get(deployments, name).Object, "spec", "replicas")
	return n
}

const (
	theModel  = "llama-70b-model"
	thePool   = "llama-70b-pool"
	decoders  = theModel + "-decode"
	prefiller = theModel + "-prefill"
)

// The objects follow their model: made, changed back, scaled, and deleted with it.
func TestObjectsFollowTheModel(t *testing.T) {
	w := start(t, parse(t, document003(t))...)
	eventually.Is(t, "the workers", func() bool { return w.replicas(decoders) == 5 && w.replicas(prefiller) == 3 })
	eventually.Is(t, "Service and PodDisruptionBudget", func() bool {
		return w.get(services, decoders).GetName() != "" && w.get(budgets, decoders).GetName() != ""
	})
	w.change(models, theModel, int64(6), "spec", "deployment", "decodeWorkers", "replicas")
	eventually.Is(t, "one worker more", func() bool { return w.replicas(decoders) == 6 })
	w.change(deployments, prefiller, []any{}, "spec", "template", "spec", "containers")
	eventually.Is(t, "the containers of the model", func() bool {
		list, _, _ := unstructured.NestedSlice(w.get(deployments, prefiller).Object, "spec", "template", "spec",
			"containers")
		return len(list) == 1
	})
	// The pool scales from 2 to 10 servers: what an autoscaler has set stays.
	w.change(deployments, decoders, int64(40), "spec", "replicas")
	eventually.Is(t, "the bound of the pool", func() bool { return w.replicas(decoders) == 10 })
	err := w.Resource(models).Namespace("llm-serving").Delete(t.Context(), theModel, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the deletion", func() bool {
		return w.get(deployments, decoders).GetName()+w.get(services, decoders).GetName()+
			w.get(budgets, decoders).GetName() == ""
	})
}

// The status has the counts and metrics of document 003, and what a model's Deployments report.
func TestStatus(t *testing.T) {
	var list []*unstructured.Unstructured
	for i, ready := range []string{"True", "True", "False"} {
		list = append(list, parse(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: pod-%d, namespace: llm-serving, labels: {model: llama-70b, role: inference, llm-d.ai/role: decode}}
spec: {containers: [{name: vllm, image: m}]}`, i))...)
		list[i].Object["status"] = dict{
			"podIP":      "10.0.0.1",
			"conditions": []any{dict{"type": "Ready", "status": ready}},
		}
	}
	w := start(t, append(parse(t, document003(t)), list...)...)
	eventually.Is(t, "the pool's status", func() bool {
		s, _ := w.get(pools, thePool).Object["status"].(dict)
		metrics, _ := s["metrics"].(dict)
		return s["totalPods"] == int64(3) && s["availablePods"] == int64(2) && s["unhealthyPods"] == int64(1) &&
			metrics["averageQueueLength"] == 3.0
	})
	eventually.Is(t, "the Deployment", func() bool { return w.get(deployments, decoders).GetName() != "" })
	w.change(deployments, decoders, dict{"replicas": int64(5), "readyReplicas": int64(4)}, "status")
	eventually.Is(t, "the model's status", func() bool {
		s, _ := w.get(models, theModel).Object["status"].(dict)
		of, _ := s["deploymentStatus"].(dict)
		info, _ := s["modelInfo"].(dict)
		return s["loadingState"] == "Loaded" && s["lastLoadTime"] != nil && of["totalPods"] == int64(5) &&
			of["decodeWorkersReady"] == int64(4) && of["prefillWorkersReady"] == int64(0) &&
			info["numLayers"] == int64(80)
	})
}

// A mistake is reported in the object's status, and what was made stays. So it does while the API server is away.
func TestLastGoodStateStays(t *testing.T) {
	w := start(t, parse(t, document003(t))...)
	eventually.Is(t, "the workers", func() bool { return w.replicas(decoders) == 5 })
	w.change(models, theModel, "many", "spec", "deployment", "decodeWorkers", "replicas")
	eventually.Is(t, "the mistake in the status", func() bool {
		text := fmt.Sprint(w.get(models, theModel).Object["status"])
		return strings.Contains(text, "Invalid") && strings.Contains(text, "replicas: found") &&
			strings.Contains(text, "many")
	})
	if n := w.replicas(decoders); n != 5 {
		t.Errorf("%d decode workers after the mistake", n)
	}
	var away atomic.Bool
	var refused atomic.Int64
	w.PrependReactor("update", "deployments", func(k8stesting.Action) (bool, runtime.Object, error) {
		if !away.Load() {
			return false, nil, nil
		}
		refused.Add(1)
		return true, nil, errors.New("the API server is away")
	})
	away.Store(true)
	w.change(models, theModel, int64(7), "spec", "deployment", "decodeWorkers", "replicas")
	w.change(models, theModel, int64(2), "spec", "deployment", "prefillWorkers", "replicas") // the least of the pool
	eventually.Is(t, "two attempts", func() bool { return refused.Load() > 1 })
	away.Store(false)
	eventually.Is(t, "the newest state", func() bool {
		return w.replicas(decoders) == 7 && w.replicas(prefiller) == 2
	})
}
