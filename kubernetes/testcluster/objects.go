package testcluster

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
)

// crds are the files of the CRDs, by the modules of their upstream releases.
var crds = map[string]string{
	"sigs.k8s.io/gateway-api@v1.6.1":                     "config/crd/standard/gateway.networking.k8s.io_[ghr]*s.yaml",
	"sigs.k8s.io/gateway-api-inference-extension@v1.5.0": "config/crd/bases/*.yaml",
}

// Dynamic returns a client for any objects, as an administrator.
func (c *Cluster) Dynamic(t testing.TB) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// CreateCRDs creates the CRDs of Gateway API and the inference extension. The go command fetches them once.
func (c *Cluster) CreateCRDs(t testing.TB) {
	t.Helper()
	for module, pattern := range crds {
		out, err := exec.Command("go", "mod", "download", "-json", module).Output()
		var found struct{ Dir string }
		if err == nil {
			err = json.Unmarshal(out, &found)
		}
		if err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(found.Dir, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s has no %s: %v", module, pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			c.Create(t, string(text))
		}
	}
}

// resource returns the resource of an object's kind.
func resource(x *unstructured.Unstructured) schema.GroupVersionResource {
	kind := strings.ToLower(x.GetKind())
	plural := kind + "s"
	if strings.HasSuffix(kind, "s") {
		plural = kind + "es"
	}
	return x.GroupVersionKind().GroupVersion().WithResource(plural)
}

// Create creates objects of YAML documents whose kinds have regular plurals, and waits until their kinds are served.
func (c *Cluster) Create(t testing.TB, text string) {
	t.Helper()
	client := c.Dynamic(t)
	for one := range strings.SplitSeq("\n"+text, "\n---") {
		x := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(one), &x.Object); err != nil {
			t.Fatal(err)
		}
		if len(x.Object) == 0 {
			continue
		}
		last := ""
		eventually.Is(t, x.GetKind()+" "+x.GetName(), func() bool {
			_, err := client.Resource(resource(x)).Namespace(x.GetNamespace()).Create(context.Background(), x,
				metav1.CreateOptions{})
			if err != nil && err.Error() != last {
				last = err.Error()
				t.Log(last)
			}
			return err == nil
		})
	}
}

// KubeconfigOf returns a file that reaches the API server as a service account.
func (c *Cluster) KubeconfigOf(t testing.TB, namespace, account string) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	request := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": struct{}{}}
	text, err := os.ReadFile(c.Kubeconfig)
	if err == nil {
		err = c.Client.Do(context.Background(), http.MethodPost,
			apiclient.At("serviceaccounts", namespace, account, "token"), request, &answer)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		text := strings.Replace(string(text), "token: "+token, "token: "+answer.Status.Token, 1)
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
