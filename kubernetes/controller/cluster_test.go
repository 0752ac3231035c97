package controller

import (
	"context"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/kubernetes/testcluster"
)

// A real API server takes the CRDs and all that the controller makes, its controllers bring the pods, and its garbage
// collector removes everything with the model.
func TestOnAnAPIServer(t *testing.T) {
	cluster := testcluster.Start(t)
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	create := func(r schema.GroupVersionResource, x *unstructured.Unstructured) {
		t.Helper()
		eventually.Is(t, x.GetName(), func() bool { // a new CRD is served a little later
			_, err = client.Resource(r).Namespace(x.GetNamespace()).Create(t.Context(), x, metav1.CreateOptions{})
			return err == nil
		})
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	create(namespaces, parse(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: llm-serving}")[0])
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	for _, x := range parse(t, readFile(t, "../../deploy/crds/serving.kserve.io.yaml")) {
		create(crds, x)
	}
	for _, x := range parse(t, document003(t)) {
		create(map[string]schema.GroupVersionResource{kindModel: models, kindPool: pools}[x.GetKind()], x)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- New(Options{Client: client, Images: Images{Own: ours}, Period: time.Second,
			Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	at := func(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
		x, err := client.Resource(r).Namespace("llm-serving").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return &unstructured.Unstructured{Object: dict{}}
		}
		return x
	}
	eventually.Is(t, "8 pods in the status of the pool, none ready", func() bool {
		s, _ := at(pools, thePool).Object["status"].(dict)
		return s["totalPods"] == int64(8) && s["availablePods"] == int64(0)
	})
	eventually.Is(t, "the status of the model", func() bool {
		s, _ := at(models, theModel).Object["status"].(dict)
		of, _ := s["deploymentStatus"].(dict)
		return s["loadingState"] == "Pending" && of["totalPods"] == int64(8)
	})
	if at(services, decoders).GetName() == "" || at(budgets, prefiller).GetName() == "" {
		t.Error("Service or PodDisruptionBudget is missing")
	}
	versions := at(deployments, decoders).GetGeneration()
	eventually.Is(t, "another round", func() bool { // the server's defaults are no changes
		s, _ := at(pools, thePool).Object["status"].(dict)
		return s["totalPods"] == int64(8)
	})
	if now := at(deployments, decoders).GetGeneration(); now != versions || now != 1 {
		t.Errorf("the Deployment was written %d times; expected once", now)
	}
	if err := client.Resource(models).Namespace("llm-serving").Delete(t.Context(), theModel,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "nothing is left of the model", func() bool {
		list, err := client.Resource(deployments).Namespace("llm-serving").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0 && at(services, decoders).GetName() == ""
	})
}
