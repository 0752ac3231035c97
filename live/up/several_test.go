package up

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// The example with two base models and adapters: the body's model leads to its pool,
// and each pool asks its own picker, with that one's plug-ins.
func TestSeveralModels(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, "several-models"))
	if len(r.notes) > 0 {
		t.Errorf("nothing is to be made up or left out:\n%s", strings.Join(r.notes, "\n"))
	}
	at := r.url(80) + "/v1/chat/completions"
	const llama, qwen = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
	served := map[string]map[string]int{}
	for _, model := range []string{llama, "food-review-1", "cad-fabricator", qwen} {
		served[model] = map[string]int{}
		for i := range 40 {
			a := r.post(at, fmt.Sprintf(
				`{"model":%q,"max_tokens":2,"messages":[{"role":"user","content":"question %d of many, to %s"}]}`,
				model, i, model), "Content-Type", "application/json")
			if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(fmt.Sprintf(`"model":%q`, model))) {
				t.Fatalf("%s: %d: %s", model, a.status, a.body)
			}
			pod := a.head.Get("x-inference-pod")
			served[model][pod[:strings.LastIndex(pod, "-")]]++
		}
	}
	for model, pools := range served {
		want := "llama"
		if model == qwen {
			want = "qwen"
			if pools["qwen-next"] == 0 {
				t.Errorf("of %s none came to qwen-next, whose weight is one in five: %v", model, pools)
			}
			delete(pools, "qwen-next")
		}
		if len(pools) != 1 || pools[want] == 0 {
			t.Errorf("%s was served by %v; expected %s", model, pools, want)
		}
	}
	asked := map[string]int{}
	for _, p := range r.Addresses().Pickers {
		page := r.do(http.MethodGet, "http://"+p.Metrics+"/metrics", "").body
		for _, x := range []struct{ pool, plugin string }{{"default/llama", "lora-affinity-scorer"},
			{"default/qwen", "kv-cache-utilization-scorer"}, {"default/qwen-next", "random-picker"}} {
			if ran := bytes.Contains(page, []byte(`plugin_type="`+x.plugin+`"`)); ran != (x.pool == p.Pool) {
				t.Errorf("picker %s of pool %s: %s ran: %v", p.Name, p.Pool, x.plugin, ran)
			}
		}
		asked[p.Pool]++
	}
	if asked["default/llama"] != 2 || len(asked) != 3 {
		t.Errorf("pickers: %v; expected two of llama, and each of the others", asked)
	}
	if a := r.post(at, `{"messages":[]}`); a.status != http.StatusBadRequest ||
		!bytes.Contains(a.body, []byte("has no model")) {
		t.Errorf("without a model: %d: %s", a.status, a.body)
	}
	if a := r.post(at, `{"model":`); a.status != http.StatusBadRequest ||
		!bytes.Contains(a.body, []byte("failed to parse")) {
		t.Errorf("no JSON: %d: %s", a.status, a.body)
	}
	if a := r.post(at, `{"model":"unknown"}`, "X-Gateway-Base-Model-Name", qwen); a.status != http.StatusNotFound {
		t.Errorf("an unknown model: %d: %s", a.status, a.body)
	}
	if a := r.do(http.MethodGet, r.url(80)+"/v1/models", "", "X-Gateway-Base-Model-Name",
		qwen); a.status != http.StatusNotFound {
		t.Errorf("a client's own header led to a pool: %d: %s", a.status, a.body)
	}
}

// router is a body-based router with its flags, for base model one with adapter a.
func router(namespace string, adapters string, flags ...string) string {
	args := `"--streaming"`
	for _, f := range flags {
		args += fmt.Sprintf(", %q", f)
	}
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bbr, namespace: %s}
spec:
  selector: {matchLabels: {app: bbr}}
  template: {metadata: {labels: {app: bbr}}, spec: {containers: [{name: bbr, image: example.com/bbr:v1, args: [%s]}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {inference.llm-d.ai/ipp-managed: "true"}}
data: {baseModel: one, adapters: %q}
`, namespace, args, adapters)
}

// leadByBase leads a base model to its pool.
func leadByBase(name string) string {
	return object("HTTPRoute", "base-"+name, dict{"parentRefs": []dict{{"name": "g"}}, "rules": []dict{{
		"matches":     []dict{{"headers": []dict{{"name": "X-Gateway-Base-Model-Name", "value": name}}}},
		"backendRefs": []dict{pool(name)}}}})
}

// Bodies of all sizes come through both filters whole, up to the router's limit; what
// comes without a model passes where nothing requires one; and an adapter that is added
// while requests flow is known at once.
func TestBodyBasedRouting(t *testing.T) {
	t.Parallel()
	state := func(adapters string) *gateway.Set {
		return objectsOf(t, oneGateway()+echoes("one", 1)+echoes("rest", 1)+leadByBase("one")+
			leadTo("/", dict{"name": "rest", "port": 8080})+router("default", adapters))
	}
	r := bring(t, state("- a"))
	at := r.url(80) + "/v1/completions"
	for _, size := range []int{100, 1 << 10, 16 << 10, 64 << 10, 100_000, 1 << 20, 4 << 20} {
		body := fmt.Sprintf(`{"prompt":"%s","model":"a"}`, strings.Repeat("x", size))
		a := r.post(at, body, "X-Gateway-Model-Name", "spoofed")
		name, _ := a.pod()
		if a.status != http.StatusOK || name != "one-0" ||
			!bytes.Contains(a.body, []byte(`"X-Gateway-Model-Name":["a"]`)) ||
			!bytes.Contains(a.body, []byte(fmt.Sprintf(`"bodyBytes":%d`, len(body)))) {
			t.Errorf("%d bytes: %d from %s: %.900s", size, a.status, name, a.body)
		}
	}
	if a := r.post(at, `{"model":"a","prompt":"`+
		strings.Repeat("x", 33<<20)+`"}`); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("beyond the limit: %d: %.300s", a.status, a.body)
	}
	for _, body := range []string{`{"prompt":"x"}`, `{"model":"new","prompt":"x"}`} {
		a := r.post(at, body)
		if name, _ := a.pod(); name != "rest-0" {
			t.Errorf("%s: %d from %s", body, a.status, name)
		}
	}
	if err := r.Apply(t.Context(), state("- a\n- new\n")); err != nil {
		t.Fatal(err)
	}
	a := r.post(at, `{"model":"new","prompt":"x"}`)
	if name, _ := a.pod(); name != "one-0" {
		t.Errorf("an adapter that was added: %d from %s", a.status, name)
	}
	if err := r.Apply(t.Context(),
		objectsOf(t, oneGateway()+echoes("one", 1)+echoes("rest", 1)+leadByBase("one")+
			leadTo("/", dict{"name": "rest", "port": 8080}))); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "requests to pass without the router", func() bool {
		a := r.post(at, `{"model":"a","prompt":"x"}`)
		name, _ := a.pod()
		return name == "rest-0"
	})
}

// pickerOf is the Deployment of a pool's endpoint picker and its Service.
func pickerOf(pool string, replicas int, flags string) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: epp-%[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {epp: %[1]s}}
  template: {metadata: {labels: {epp: %[1]s}}, spec: {containers: [{name: epp, image: example.com/epp-server, args: [--pool-name=%[1]s%[3]s]}]}}
---
apiVersion: v1
kind: Service
metadata: {name: epp-%[1]s}
spec: {selector: {epp: %[1]s}, ports: [{port: 9002}]}
`, pool, replicas, flags)
}

// Envoy reaches no picker whose Service lacks the port that the pool names, and serves requests again after an edit.
func TestPickerPort(t *testing.T) {
	t.Parallel()
	with := func(port string) *gateway.Set {
		return objectsOf(t, oneGateway()+echoes("one", 1)+leadTo("/v1", pool("one"))+
			strings.Replace(pickerOf("one", 1, ""), "ports: [{port: 9002}]", "ports: [{port: "+port+"}]", 1))
	}
	r := bring(t, with("9003"))
	if got := r.status("/v1/chat/completions"); got < 500 {
		t.Errorf("without the port: %d", got)
	}
	if err := r.Apply(t.Context(), with("9002")); err != nil {
		t.Fatal(err)
	}
	if got := r.status("/v1/chat/completions"); got != http.StatusOK {
		t.Errorf("with the port: %d", got)
	}
}

// A pod is an endpoint at its own address, whatever host its model server announces to others.
func TestAnnouncedHost(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+leadTo("/v1", pool("a"))+
		strings.Replace(servers("a", 1, ""), `"--model", "a"`, `"--model", "a", "--advertise", "127.99.0.9"`, 1)))
	if a := r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, "a")); a.status != http.StatusOK {
		t.Errorf("%d: %s", a.status, a.body)
	}
}

// Replicas of a pool's picker share its requests, and come and go without a failed
// request; with an election one alone is asked.
func TestPickerReplicas(t *testing.T) {
	t.Parallel()
	state := func(replicas int, flags string) *gateway.Set {
		return objectsOf(t, oneGateway()+echoes("one", 2)+leadTo("/v1", pool("one"))+pickerOf("one", replicas, flags))
	}
	r := bring(t, state(3, ""))
	at := r.url(80) + "/v1/chat/completions"
	var done atomic.Bool
	var asked atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			client := http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for !done.Load() {
				resp, err := client.Post(at, "application/json", strings.NewReader(chat))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("status %d: %s (%v)", resp.StatusCode, body, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	decided := func() (out []int) {
		for _, p := range r.Addresses().Pickers {
			page := string(r.do(http.MethodGet, "http://"+p.Metrics+"/metrics", "").body)
			n := 0
			for line := range strings.Lines(page) {
				if of, found := strings.CutPrefix(line,
					`llmd_epp_scheduling_decisions_total{result="success"} `); found {
					n, _ = strconv.Atoi(strings.TrimSpace(of))
				}
			}
			out = append(out, n)
		}
		return out
	}
	all := func(replicas int) func() bool {
		return func() bool {
			d := decided()
			for _, n := range d {
				if n == 0 {
					return false
				}
			}
			return t.Failed() || len(d) == replicas
		}
	}
	eventually.Is(t, "all three replicas to be asked", all(3))
	for _, n := range []int{1, 2, 4, 1, 3} {
		if err := r.Apply(t.Context(), state(n, "")); err != nil {
			t.Fatal(err)
		}
		eventually.Is(t, fmt.Sprint(n, " replicas to be asked"), all(n))
	}
	done.Store(true)
	wg.Wait()
	if err := r.Apply(t.Context(), state(3, ", --ha-enable-leader-election")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		r.post(at, chat)
	}
	if d := decided(); len(d) != 3 || d[0] == 0 || d[1]+d[2] > 0 {
		t.Errorf("with an election the pickers decided %v; expected the first alone", d)
	}
}
