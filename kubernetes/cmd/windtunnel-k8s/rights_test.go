package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/kubernetes/testcluster"
)

// golden returns the objects of some kinds that the chart renders for a set of values.
func golden(t *testing.T, name string, kinds ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../../test/chart/testdata/" + name + ".golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for one := range strings.SplitSeq("\n"+string(text), "\n---") {
		var x unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(one), &x.Object); err != nil {
			t.Fatal(err)
		}
		for _, kind := range kinds {
			if len(x.Object) > 0 && x.GetKind() == kind {
				out = append(out, one)
			}
		}
	}
	return strings.Join(out, "\n---")
}

type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.text.String(), text)
}

// begin runs a command line until stop. Done receives the exit code.
func begin(args []string) (out *output, done <-chan int, stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	out = &output{}
	o := console.New()
	o.Stdout, o.Stderr = out, out
	o.Env = func(string) (string, bool) { return "", false }
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, func() {} }
	code := make(chan int, 1)
	go func() { code <- run(args, o) }()
	return out, code, stop
}

// part is a part of windtunnel with the rights that the chart gives it.
type part struct {
	values  string // of the chart
	account string
	args    []string
	// The part prints says once it has used its rights. By then it has written the status of the object condition.
	says      string
	condition string
	// role has the rule without whose last verb the part ends with an error; the error has all of missing.
	role    schema.GroupVersionResource
	name    string
	rule    int
	missing string
}

var (
	rbac         = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	roles        = rbac.WithResource("roles")
	clusterRoles = rbac.WithResource("clusterroles")
)

// Each part works with the rights that the chart gives it. With one right less it ends with one error that names the
// right.
func TestRights(t *testing.T) {
	c := testcluster.Start(t)
	client := c.Dynamic(t)
	c.CreateCRDs(t)
	for _, file := range []string{"../../../deploy/crds/serving.kserve.io.yaml",
		"../../../examples/manifests/document-003/pool.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(file, "examples") {
			c.Create(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: llm-serving}")
		}
		c.Create(t, string(text))
	}
	rights := []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
	port := freeport.Row(t, 10)
	flag := func(name string, i int) string { return fmt.Sprintf("--%s=%d", name, port+i) }
	for _, p := range []part{
		{values: "leader-election", account: "demo-llama-epp", says: "this replica leads",
			args: []string{"epp", "--pool-name=demo-llama", "--pool-namespace=default", "--ha-enable-leader-election",
				"--config-text=apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig", flag("grpc-port", 0),
				flag("grpc-health-port", 1), flag("metrics-port", 2)},
			role: roles, name: "demo-llama-epp", rule: 1, missing: "cannot watch resource \"inferencepools\""},
		{values: "disaggregated", account: "demo-llama-sidecar", says: "windtunnel sidecar:",
			args: []string{"sidecar", "--enable-ssrf-protection", "--inference-pool=default/demo-llama",
				"--secure-proxy=false", flag("port", 3), flag("model-server-port", 4)},
			role: roles, name: "demo-llama-sidecar", rule: 0, missing: "cannot watch resource \"pods\""},
		{values: "gateway", account: "demo-gateway", says: "/readyz and /metrics on",
			condition: "gatewayclasses.v1.gateway.networking.k8s.io//default-demo-gateway",
			args: []string{"gateway", "--namespace=default", "--controller=windtunnel.dev/default-demo-gateway",
				flag("health-port", 5), "--drain=1s"},
			role: clusterRoles, name: "default-demo-gateway", rule: 0,
			missing: "cannot watch resource \"gatewayclasses\""},
		{values: "controller", account: "demo-controller", says: "every object is read",
			condition: "inferencepools.v1alpha1.serving.kserve.io/llm-serving/llama-70b-pool",
			args:      []string{"controller", "--image=windtunnel-k8s:dev", "--period=1s"},
			role:      clusterRoles, name: "default-demo-controller", rule: 2,
			missing: "cannot watch resource \"deployments\""},
	} {
		t.Run(p.values, func(t *testing.T) {
			kinds := rights
			if p.values == "gateway" {
				kinds = append(kinds, "GatewayClass", "Gateway", "HTTPRoute", "InferencePool")
			}
			c.Create(t, golden(t, p.values, kinds...))
			defer func() { // the next set of values has objects of the same names
				for _, r := range []schema.GroupVersionResource{roles, rbac.WithResource("rolebindings"),
					{Version: "v1", Resource: "serviceaccounts"}} {
					err := client.Resource(r).Namespace("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
						metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=demo"})
					if err != nil {
						t.Error(err)
					}
				}
			}()
			args := append(p.args, "--kubeconfig="+c.KubeconfigOf(t, "default", p.account))
			out, done, stop := begin(args)
			defer stop()
			eventually.Is(t, p.says, func() bool { return out.has(p.says) || len(done) > 0 })
			if p.condition != "" {
				kind, at, _ := strings.Cut(p.condition, "/")
				namespace, name, _ := strings.Cut(at, "/")
				r, _ := schema.ParseResourceArg(kind)
				eventually.Is(t, p.condition, func() bool {
					x, err := client.Resource(*r).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
					return len(done) > 0 || err == nil && strings.Contains(fmt.Sprint(x.Object["status"]), "reason")
				})
			}
			stop()
			if code := <-done; code != 0 || out.has("forbidden") {
				t.Fatalf("exit code %d:\n%s", code, &out.text)
			}
			namespace := ""
			if p.role == roles {
				namespace = "default"
			}
			role := client.Resource(p.role).Namespace(namespace)
			x, err := role.Get(t.Context(), p.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rules := x.Object["rules"].([]any)
			rule := rules[p.rule].(map[string]any)
			verbs := rule["verbs"].([]any)
			rule["verbs"] = verbs[:len(verbs)-1]
			patch, err := json.Marshal(map[string]any{"rules": rules})
			if err == nil {
				_, err = role.Patch(t.Context(), p.name, types.MergePatchType, patch, metav1.PatchOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			eventually.Is(t, "the error", func() bool { // the API server learns of the role a little later
				out, done, stop = begin(args)
				eventually.Is(t, "an end", func() bool { return len(done) > 0 || out.has(p.says) })
				stop()
				return <-done != 0
			})
			if text := out.text.String(); !strings.Contains(text, p.missing) ||
				!strings.Contains(text, "expected the role of the chart") || strings.Count(text, "forbidden") != 1 {
				t.Errorf("expected one error with %q:\n%s", p.missing, text)
			}
		})
	}
}
