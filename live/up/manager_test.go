package up

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// Document 003's KV-Cache Manager runs where its Deployment says: model servers send it
// their events by its Service's name, and the picker asks it by that name where a prompt
// is cached. One that comes in a later change gets the events from then on.
func TestManagerDeployment(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/manifests/kv-cache-manager/"
	text, err := os.ReadFile(dir + "manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "INDEX_MAX_BLOCKS", "INDEX_CLEANUP_INTERVAL", 1)
	r := bring(t, objectsOf(t, "kv-cache-manager"))
	at := r.url(80) + "/v1/chat/completions"
	for change, prompt := range []string{"a first prompt ", "a second prompt "} {
		if change == 1 { // another manager, which model servers are to find
			if err := r.Apply(t.Context(), objectsOf(t, "kv-cache-manager/pool.yaml", changed)); err != nil {
				t.Fatal(err)
			}
		}
		body := `{"model":"meta-llama/Llama-3.1-8B-Instruct","max_tokens":2,"messages":[{"role":"user","content":"` +
			strings.Repeat(prompt, 60) + `"}]}`
		first := r.post(at, body, "Content-Type", "application/json")
		if first.status != http.StatusOK {
			t.Fatalf("%d: %s", first.status, first.body)
		}
		var api string
		for _, p := range r.Addresses().Pods {
			if p.Role == "KV-Cache Manager" {
				api = "http://" + p.Ports["8080"]
			}
		}
		pod := first.head.Get("x-inference-pod")
		eventually.Is(t, "the manager hears of the pod's blocks", func() bool {
			var info struct {
				Blocks int `json:"blocks_cached"`
			}
			a := r.do(http.MethodGet, api+"/api/v1/cache/pod/"+pod, "")
			return a.status == http.StatusOK && json.Unmarshal(a.body, &info) == nil && info.Blocks > 0
		})
		// What the picker had open to the manager before lasts until that one has gone.
		scored := func() answer { return r.post(at, body, "Content-Type", "application/json") }
		a := scored()
		if change == 1 {
			eventually.Is(t, "the picker asks the manager that is there now", func() bool {
				a = scored()
				return strings.Contains(a.head.Get("x-windtunnel-scores"), pod+"-rank-0=60")
			})
		}
		for range 6 {
			if got := a.head.Get("x-inference-pod"); got != pod && change == 0 {
				t.Errorf("the prompt that %s has cached went to %s: %v", pod, got, a.head)
			}
			a = scored()
		}
	}
}

// Of several managers behind one Service each hears of the blocks of its share of the model servers, as by their
// connections in a cluster.
func TestManagersShareEvents(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/manifests/kv-cache-manager/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(text), "replicas: 1", "replicas: 2", 1)
	r := bring(t, objectsOf(t, "kv-cache-manager/pool.yaml", two))
	body := `{"model":"meta-llama/Llama-3.1-8B-Instruct","max_tokens":2,"prompt":"` + strings.Repeat("a prompt ", 60) + `"}`
	managers := 0
	for _, p := range r.Addresses().Pods {
		if p.Role != "model server" {
			continue
		}
		for _, at := range p.Ports {
			if a := r.post("http://"+at+"/v1/completions", body, "Content-Type",
				"application/json"); a.status != http.StatusOK {
				t.Fatalf("%d: %s", a.status, a.body)
			}
		}
	}
	for _, p := range r.Addresses().Pods {
		if p.Role != "KV-Cache Manager" {
			continue
		}
		managers++
		eventually.Is(t, p.Name+" hears of blocks", func() bool {
			a := r.do(http.MethodGet, "http://"+p.Ports["8080"]+"/api/v1/cache/state", "")
			return a.status == http.StatusOK && !strings.Contains(string(a.body), `"total_blocks":0`)
		})
	}
	if managers != 2 {
		t.Errorf("%d managers, expected 2", managers)
	}
}
