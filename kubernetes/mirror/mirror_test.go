package mirror

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/files"
)

// notFound is the answer about a kind that is not installed.
var notFound = apierrors.NewNotFound(Pool[4].GroupResource(), "")

// dict is a JSON object.
type dict = map[string]any

func pod(i int, ready string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: dict{"apiVersion": "v1", "kind": "Pod",
		"metadata": dict{"name": fmt.Sprintf("server-%d", i), "namespace": "llm", "labels": dict{"app": "llama"}},
		"spec":     dict{"containers": []any{dict{"name": "vllm", "image": "vllm"}}},
		"status": dict{"podIP": fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), "phase": "Running",
			"conditions": []any{dict{"type": "Ready", "status": ready}}}}}
}

func pool() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: dict{
		"apiVersion": objects.GroupV1 + "/v1",
		"kind":       "InferencePool",
		"metadata":   dict{"name": "llama", "namespace": "llm"},
		"spec": dict{
			"selector":          dict{"matchLabels": dict{"app": "llama"}},
			"targetPorts":       []any{dict{"number": int64(8000)}},
			"endpointPickerRef": dict{"name": "epp", "port": dict{"number": int64(9002)}},
		},
	}}
}

// endpoints returns how many endpoints a picker reads from the directory.
func endpoints(t testing.TB, dir string) int {
	t.Helper()
	set := &objects.Set{DefaultNamespace: "llm"}
	if err := files.Manifests("objects", dir, objects.MaxFileBytes, set.Add); err != nil {
		t.Fatal(err)
	}
	new(objects.Ages).Settle(set)
	return len(set.Select("llm", "llama").Endpoints)
}

// A picker finds the ready pods of its pool in the directory, and each change of them. A kind that is not installed is
// left out, and an API server that does not answer is asked again.
func TestDirectoryFollows(t *testing.T) {
	const n = 300
	list := []runtime.Object{pool(), &unstructured.Unstructured{Object: dict{"apiVersion": "llm-d.ai/v1alpha2",
		"kind": "InferenceObjective", "metadata": dict{"name": "batch", "namespace": "llm"}}}}
	for i := range n {
		list = append(list, pod(i, "True"))
	}
	lists := map[schema.GroupVersionResource]string{}
	for i, r := range Pool {
		lists[r] = []string{"PodList", "InferencePoolList", "OldPoolList", "ObjectiveList", "RewriteList",
			"NewObjectiveList", "NewRewriteList"}[i]
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, list...)
	failures := 1
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("the API server is away")
	})
	client.PrependReactor("list", "inferencemodelrewrites", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, notFound
	})
	dir := t.TempDir()
	err := Start(t.Context(), Options{Client: client, Namespace: "llm", Resources: Pool, Dir: dir, Check: PoolObject,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if names, err := filepath.Glob(dir + "/inferenceobjectives.llm-d.ai-*"); err != nil || len(names) != 1 {
		t.Errorf("objectives are in %v, %v; expected one file", names, err)
	}
	if got := endpoints(t, dir); got != n {
		t.Errorf("%d endpoints, expected %d", got, n)
	}
	eventually.Is(t, "all watches", func() bool { // the fake server loses what changes before
		watches := 0
		for _, a := range client.Actions() {
			if a.GetVerb() == "watch" {
				watches++
			}
		}
		return watches == 2*(len(Pool)-2) // each is tried first
	})
	pods := client.Resource(Pool[0]).Namespace("llm")
	if err := pods.Delete(t.Context(), "server-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Update(t.Context(), pod(1, "False"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(t.Context(), pod(n, "True"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the changes", func() bool { return endpoints(t, dir) == n-1 })
	if err := client.Resource(
		Pool[1],
	).Namespace(
		"llm",
	).Delete(
		t.Context(),
		"llama",
		metav1.DeleteOptions{},
	); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "no pool", func() bool { return endpoints(t, dir) == 0 })
	names, err := filepath.Glob(dir + "/*")
	if err != nil || len(names) == 0 || len(names) > shards+1 {
		t.Errorf("%d files, %v", len(names), err)
	}
	if text, err := os.ReadFile(names[0]); err != nil || len(text) > 10_000 {
		t.Errorf("%d bytes in a file, %v", len(text), err)
	}
}
