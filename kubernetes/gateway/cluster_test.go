package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/kubernetes/mirror"
	"github.com/windtunnel/windtunnel/kubernetes/testcluster"
)

const objectsOfTheTest = `
apiVersion: v1
kind: Namespace
metadata: {name: llm}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: windtunnel}
spec: {controllerName: windtunnel.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g, namespace: llm}
spec: {gatewayClassName: windtunnel, listeners: [{name: http, port: %[1]d, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: llm}
spec:
  parentRefs: [{name: g}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llama}]}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llama, namespace: llm}
spec: {selector: {matchLabels: {app: llama}}, targetPorts: [{number: %[2]d}], endpointPickerRef: {name: epp, port: {number: 9002}}}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: llm, labels: {app: llama}}
spec: {containers: [{name: vllm, image: m}]}
---
apiVersion: v1
kind: Service
metadata: {name: epp, namespace: llm}
spec: {selector: {app: epp}, ports: [{port: 9002, targetPort: %[3]d}]}
---
apiVersion: v1
kind: Pod
metadata: {name: epp, namespace: llm, labels: {app: epp}}
spec: {containers: [{name: epp, image: m}]}
`

// world is an API server with the CRDs of Gateway API and the inference extension.
type world struct {
	t       *testing.T
	cluster *testcluster.Cluster
	client  dynamic.Interface
}

func newWorld(t *testing.T) *world {
	c := testcluster.Start(t)
	c.CreateCRDs(t)
	return &world{t, c, c.Dynamic(t)}
}

// run makes a pod ready at an address.
func (w *world) run(name, ip string) {
	w.t.Helper()
	pods := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("llm")
	x, err := pods.Get(w.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		x.Object["status"] = dict{"phase": "Running", "podIP": ip, "podIPs": []any{dict{"ip": ip}},
			"conditions": []any{dict{"type": "Ready", "status": "True"}}}
		_, err = pods.UpdateStatus(w.t.Context(), x, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// condition returns the status and the reason of a condition below an object's status.
func (w *world) condition(r schema.GroupVersionResource, namespace, name, kind string, at ...string) string {
	x, err := w.client.Resource(r).Namespace(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	status := x.Object["status"]
	for _, k := range at {
		list, _ := field(status, k).([]any)
		if len(list) != 1 {
			return fmt.Sprintf("%d %s", len(list), k)
		}
		status = list[0]
	}
	list, _ := field(status, "conditions").([]any)
	for _, c := range list {
		if field(c, "type") == kind {
			return fmt.Sprint(field(c, "status"), " ", field(c, "reason"))
		}
	}
	return "none"
}

// start runs a command until the test ends.
func (w *world) start(run func(o *console.Console) error) {
	ctx, stop := context.WithCancel(context.Background())
	o := console.New()
	o.Stderr = io.Discard
	if testing.Verbose() {
		o.Stderr = os.Stderr
	}
	o.Env = func(string) (string, bool) { return "", false }
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, func() {} }
	var done sync.WaitGroup
	done.Go(func() {
		if err := run(o); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() { stop(); done.Wait() })
}

// A request reaches a model server through a Gateway, a route and a pool of an API server, and through the pool's
// picker, which has the same objects. The Gateway writes every status, and only where it changes.
func TestGatewayOnAnAPIServer(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		fmt.Fprint(out, "served ", r.URL.Path)
	}))
	t.Cleanup(server.Close)
	port := freeport.Row(t, 6)
	w.cluster.Create(t, fmt.Sprintf(objectsOfTheTest, port, server.Listener.Addr().(*net.TCPAddr).Port, port+1))
	w.run("server", "127.0.0.1")
	w.run("epp", "127.0.0.1")
	at := mirror.Cluster{Kubeconfig: w.cluster.Kubeconfig}
	epp := &mirror.EPP{Cluster: at}
	epp.ConfigText = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}]\n" +
		"schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]"
	epp.PoolName, epp.PoolNamespace, epp.Listen, epp.GRPCPort, epp.GRPCHealthPort, epp.MetricsPort, epp.SecureServing =
		"llama", "llm", "127.0.0.1", port+1, port+2, port+3, true
	epp.Errors, epp.Zap, epp.DecisionsKept = "epp", "json", 10
	w.start(epp.Run)
	w.start((&Command{Cluster: at, Controller: controllerName, Listen: "127.0.0.1", Address: "gateway.example.com",
		PickerTLS: true, HealthPort: port + 4, AdminPort: port + 5, Drain: time.Second}).Run)
	url := fmt.Sprintf("http://127.0.0.1:%d/v1/completions", port)
	ask := func() string {
		resp, err := http.Post(url, "application/json", strings.NewReader(`{"model": "m", "prompt": "Hello"}`))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body) // an incomplete answer does not match
		return fmt.Sprint(resp.StatusCode, " ", string(text))
	}
	eventually.Is(t, "an answer", func() bool { return ask() == "200 served /v1/completions" })
	for _, x := range []struct {
		r                           schema.GroupVersionResource
		namespace, name, kind, want string
		at                          []string
	}{
		{classes, "", "windtunnel", "Accepted", "True Accepted", nil},
		{gateways, "llm", "g", "Programmed", "True Programmed", nil},
		{gateways, "llm", "g", "ResolvedRefs", "True ResolvedRefs", []string{"listeners"}},
		{routes, "llm", "r", "Accepted", "True Accepted", []string{"parents"}},
		{pools, "llm", "llama", "Accepted", "True Accepted", []string{"parents"}},
		{pools, "llm", "llama", "ResolvedRefs", "True ResolvedRefs", []string{"parents"}},
	} {
		eventually.Is(t, x.name+" "+x.kind+": "+x.want, func() bool {
			return w.condition(x.r, x.namespace, x.name, x.kind, x.at...) == x.want
		})
	}
	version := func() string {
		x, err := w.client.Resource(gateways).Namespace("llm").Get(t.Context(), "g", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return x.GetResourceVersion()
	}
	was := version()
	services := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace("llm")
	if err := services.Delete(t.Context(), "epp", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the pool without its picker", func() bool {
		return w.condition(pools, "llm", "llama", "ResolvedRefs", "parents") == "False InvalidExtensionRef"
	})
	eventually.Is(t, "a refusal", func() bool { return strings.HasPrefix(ask(), "50") })
	if now := version(); now != was {
		t.Errorf("the status of the Gateway was written again without a change (%s, %s)", was, now)
	}
}
