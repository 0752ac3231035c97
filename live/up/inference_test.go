package up

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// The cases of the inference extension's own conformance suite (v1.6), with their
// names. Its endpoint picker sends a request to the pods that the request names, and
// tells which Envoy says has served it; both plug-ins are in ours.

const suitePicker = `{"apiVersion":"inference.networking.x-k8s.io/v1alpha1","kind":"EndpointPickerConfig",` +
	`"plugins":[{"type":"header-based-testing-filter"},{"type":"destination-endpoint-served-verifier"},` +
	`{"type":"random-picker"},{"type":"passthrough-parser"}],` +
	`"requestHandler":{"parsers":[{"pluginRef":"passthrough-parser"}]},` +
	`"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"header-based-testing-filter"},` +
	`{"pluginRef":"random-picker"}]}]}`

// suitePool is a pool over the pods of a Deployment, with that picker.
func suitePool(name, app string, replicas int, ports, more string) string {
	return fmt.Sprintf(`
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %[1]s}
spec: {selector: {matchLabels: {app: %[2]s}}, targetPorts: [%[4]s], endpointPickerRef: {name: epp-%[1]s, port: {number: 9002}%[5]s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: epp-%[1]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {epp: %[1]s}}
  template: {metadata: {labels: {epp: %[1]s}}, spec: {containers: [{name: epp, image: example.com/epp-server, args: [--pool-name=%[1]s, --config-text, '%[6]s']}]}}
---
apiVersion: v1
kind: Service
metadata: {name: epp-%[1]s}
spec: {selector: {epp: %[1]s}, ports: [{port: 9002}]}
`, name, app, replicas, ports, more, suitePicker)
}

func suiteServers(name string, ports string) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[1]s}}
  template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: echo, image: example.com/echo, ports: [%[2]s]}]}}
`, name, ports)
}

func suiteRoute(name, parent, host, path string, refs ...dict) string {
	spec := dict{"parentRefs": []dict{{"name": parent}},
		"rules": []dict{{"matches": []dict{{"path": dict{"value": path}}}, "backendRefs": refs}}}
	if host != "" {
		spec["hostnames"] = []string{host}
	}
	return object("HTTPRoute", name, spec)
}

func suiteGateway(name string, port int) string {
	return object("Gateway", name,
		dict{"gatewayClassName": "ours", "listeners": []dict{{"name": "http", "port": port, "protocol": "HTTP"}}})
}

func suiteObjects(eppReplicas int) string {
	with := func(ref dict, key string, value any) dict { ref[key] = value; return ref }
	return suiteGateway("primary", 80) + suiteGateway("secondary", 80) +
		suiteServers("primary-server",
			"{containerPort: 3000}, {containerPort: 3001}, {containerPort: 3002}, {containerPort: 3004}") +
		suiteServers("secondary-server", "{containerPort: 3000}") +
		suitePool("primary-pool", "primary-server", 1, "{number: 3000}", "}}") +
		suitePool("secondary-pool", "secondary-server", eppReplicas, "{number: 3000}", ", failureMode: FailOpen}}") +
		suitePool("h2c-pool", "primary-server", 1, "{number: 3001}", "}, appProtocol: kubernetes.io/h2c}") +
		suitePool("http-pool", "secondary-server", 1, "{number: 3000}", "}, appProtocol: http}") +
		suitePool("dp-pool", "primary-server", 1, "{number: 3000}, {number: 3002}, {number: 3004}", "}}") +
		suiteRoute("primary-path", "primary", "", "/primary", pool("primary-pool")) +
		suiteRoute("secondary-path", "primary", "", "/secondary", pool("secondary-pool")) +
		suiteRoute("at-secondary", "secondary", "secondary.example.com", "/", pool("secondary-pool")) +
		suiteRoute("port-none", "primary", "", "/port-none", pool("primary-pool")) +
		suiteRoute("port-same", "primary", "", "/port-same", with(pool("primary-pool"), "port", 3000)) +
		suiteRoute("port-other", "primary", "", "/port-other", with(pool("primary-pool"), "port", 8888)) +
		suiteRoute("dp", "primary", "", "/dp", pool("dp-pool")) +
		suiteRoute("h2c", "primary", "", "/h2c", pool("h2c-pool")) +
		suiteRoute("http", "primary", "", "/http", pool("http-pool")) +
		suiteRoute("weighted", "primary", "", "/weighted", with(pool("primary-pool"), "weight", 70),
			with(pool("secondary-pool"), "weight", 30))
}

const suiteBody = `{"model":"conformance-fake-model","prompt":"Write as if you were a critic: San Francisco"}`

// Requests through the real Envoy.
func TestInferenceConformance(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, suiteObjects(1)))
	at := map[string]string{}
	addresses := r.Addresses()
	for _, l := range addresses.Listeners {
		at[l.Gateway] = l.URL
	}
	ip := map[string]string{} // by pod
	for _, p := range addresses.Pods {
		ip[p.Name] = strings.TrimSuffix(p.Ports["3000"], ":3000")
	}
	ask := func(gateway, path, selection string, more ...string) (pod, served string, a answer) {
		t.Helper()
		a = r.post(at["default/"+gateway]+path, suiteBody,
			append([]string{"Content-Type", "application/json", "test-epp-endpoint-selection", selection}, more...)...)
		pod, _ = a.pod()
		return pod, a.head.Get("x-conformance-test-served-endpoint"), a
	}
	expect := func(gateway, path, selection, pod string, more ...string) {
		t.Helper()
		if got, _, a := ask(gateway, path, selection, more...); got != pod || a.status != http.StatusOK {
			t.Errorf("%s to %s: %d from %s, expected %s: %.200s", path, selection, a.status, got, pod, a.body)
		}
	}
	t.Run("HTTPRouteMultipleRulesDifferentPools", func(t *testing.T) {
		expect("primary", "/primary", ip["primary-server-1"], "primary-server-1")
		expect("primary", "/secondary", ip["secondary-server-2"], "secondary-server-2")
	})
	t.Run("HTTPRouteMultipleGatewaysDifferentPools", func(t *testing.T) {
		expect("primary", "/primary", ip["primary-server-0"], "primary-server-0")
		expect("secondary", "/any", ip["secondary-server-0"], "secondary-server-0", "Host", "secondary.example.com")
	})
	t.Run("InferencePoolHTTPRoutePortValidation", func(t *testing.T) {
		for _, path := range []string{"/port-none", "/port-same", "/port-other"} {
			expect("primary", path, ip["primary-server-0"], "primary-server-0")
		}
	})
	t.Run("GatewayFollowingEPPRouting", func(t *testing.T) {
		for n := 1; n <= 3; n++ {
			var list, names []string
			for i := range n {
				name := fmt.Sprintf("primary-server-%d", i)
				list, names = append(list, ip[name]), append(names, name)
			}
			for range 30 {
				if pod, _, a := ask("primary", "/primary", strings.Join(list, ",")); a.status != http.StatusOK ||
					!slices.Contains(names, pod) {
					t.Fatalf("%d from %s, expected one of %v", a.status, pod, names)
				}
			}
		}
	})
	t.Run("GatewayFollowingEPPRoutingWithDataParallelism", func(t *testing.T) {
		for _, port := range []string{"3000", "3002", "3004"} {
			endpoint := ip["primary-server-1"] + ":" + port
			if pod, served, a := ask("primary", "/dp", endpoint); pod != "primary-server-1" || served != endpoint {
				t.Errorf("%s: %d from %s at %s: %.200s", endpoint, a.status, pod, served, a.body)
			}
		}
	})
	t.Run("GatewayWeightedAcrossTwoInferencePools", func(t *testing.T) {
		all := strings.Join([]string{ip["primary-server-0"], ip["secondary-server-0"]}, ",")
		count := map[string]int{}
		for range 200 {
			pod, served, a := ask("primary", "/weighted", all)
			if a.status != http.StatusOK || served != ip[pod]+":3000" {
				t.Fatalf("%d from %s, served by %s", a.status, pod, served)
			}
			count[pod]++
		}
		// 70:30 of 200 is 140 ± 6.5; five of these are one failure in two million runs.
		if n := count["primary-server-0"]; n < 107 || n > 173 || count["secondary-server-0"] != 200-n {
			t.Errorf("of 200 requests: %v; expected about 140 at the first", count)
		}
	})
	t.Run("GatewayDestinationEndpointServed", func(t *testing.T) {
		for i := range 3 {
			name := fmt.Sprintf("primary-server-%d", i)
			if pod, served, a := ask("primary", "/primary", ip[name]); pod != name || served != ip[name]+":3000" {
				t.Errorf("%s: %d from %s, served by %s", name, a.status, pod, served)
			}
		}
	})
	t.Run("InferencePoolAppProtocol", func(t *testing.T) {
		for _, c := range []struct{ path, pod, port, proto string }{{"/h2c", "primary-server-2", "3001", "HTTP/2.0"},
			{"/http", "secondary-server-1", "3000", "HTTP/1.1"}, {"/primary", "primary-server-2", "3000", "HTTP/1.1"}} {
			endpoint := ip[c.pod] + ":" + c.port
			if pod, served, a := ask("primary", c.path, endpoint); pod != c.pod || served != endpoint ||
				!strings.Contains(string(a.body), `"proto":"`+c.proto+`"`) {
				t.Errorf("%s: %d from %s at %s, expected %s: %.200s", c.path, a.status, pod, served, c.proto, a.body)
			}
		}
	})
	t.Run("EppUnAvailableFailOpen", func(t *testing.T) {
		expect("secondary", "/any", ip["secondary-server-1"], "secondary-server-1", "Host", "secondary.example.com")
		if err := r.Apply(t.Context(), objectsOf(t, suiteObjects(0))); err != nil {
			t.Fatal(err)
		}
		eventually.Is(t, "the pool to be served without its picker", func() bool {
			_, _, a := ask("secondary", "/any", ip["secondary-server-1"], "Host", "secondary.example.com")
			return a.status == http.StatusOK && a.head.Get("x-conformance-test-served-endpoint") == ""
		})
	})
	t.Run("InferencePoolResolvedRefsCondition: a route that is gone", func(t *testing.T) {
		without := strings.Replace(suiteObjects(1), `"name":"primary-path"`,
			`"name":"primary-path-elsewhere","namespace":"nowhere"`, 1)
		if err := r.Apply(t.Context(), objectsOf(t, without)); err != nil {
			t.Fatal(err)
		}
		if _, _, a := ask("primary", "/primary", ip["primary-server-0"]); a.status != http.StatusNotFound {
			t.Errorf("a route that is gone: %d", a.status)
		}
		expect("primary", "/port-none", ip["primary-server-0"], "primary-server-0")
	})
}

// Conditions, as a controller reports them.
func TestInferenceConformanceStatus(t *testing.T) {
	t.Parallel()
	const class = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: example.com/ours}
`
	base := class + suiteGateway("primary", 80) + suiteGateway("secondary", 80) +
		suiteServers("primary-server", "{containerPort: 3000}")
	primary := suitePool("primary-pool", "primary-server", 1, "{number: 3000}", "}}")
	toPrimary := func(gateway string) string {
		return suiteRoute("at-"+gateway, gateway, "", "/x", pool("primary-pool"))
	}
	const accepted, resolved = "InferencePool default/primary-pool at default/%s: Accepted True Accepted",
		"InferencePool default/primary-pool at default/%s: ResolvedRefs True ResolvedRefs"
	for _, c := range []struct {
		name, objects string
		want, never   []string
	}{
		{"InferencePoolAccepted", primary + toPrimary("primary"), []string{fmt.Sprintf(accepted, "primary")}, nil},
		{"InferencePoolResolvedRefsCondition: two Gateways", primary + toPrimary("primary") + toPrimary("secondary"),
			[]string{fmt.Sprintf(accepted, "primary"), fmt.Sprintf(resolved, "primary"),
				fmt.Sprintf(accepted, "secondary"), fmt.Sprintf(resolved, "secondary")}, nil},
		{"InferencePoolResolvedRefsCondition: one route deleted", primary + toPrimary("secondary"),
			[]string{fmt.Sprintf(resolved, "secondary")}, []string{"at default/primary:"}},
		{"InferencePoolResolvedRefsCondition: both deleted", primary, nil,
			[]string{"InferencePool default/primary-pool at"}},
		{"InferencePoolInvalidEPPService",
			strings.Replace(primary, "metadata: {name: epp-primary-pool}\nspec: {selector: {epp",
				"metadata: {name: other}\nspec: {selector: {epp", 1) + toPrimary("primary"),
			[]string{"HTTPRoute default/at-primary at default/primary: Accepted True Accepted",
				"InferencePool default/primary-pool at default/primary: ResolvedRefs False InvalidExtensionRef"}, nil},
		{"InferencePoolMissingEPPRef",
			strings.Replace(primary, ", endpointPickerRef: {name: epp-primary-pool, port: {number: 9002}}}", "}", 1) +
				toPrimary("primary"),
			[]string{"HTTPRoute default/at-primary at default/primary: Accepted True Accepted",
				fmt.Sprintf(accepted, "primary")}, nil},
		{"HTTPRouteInvalidInferencePoolRef", suiteRoute("at-primary", "primary", "", "/x", pool("no-such-pool")),
			[]string{"HTTPRoute default/at-primary at default/primary: Accepted True Accepted",
				"HTTPRoute default/at-primary at default/primary: ResolvedRefs False BackendNotFound"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := gateway.Build(objectsOf(t, base+c.objects), gateway.Options{Controller: "example.com/ours"})
			var all strings.Builder
			for _, s := range p.Status {
				all.WriteString(s.String())
			}
			for _, w := range c.want {
				if !strings.Contains(all.String(), w+"\n") {
					t.Errorf("no condition %s in\n%s", w, &all)
				}
			}
			for _, n := range c.never {
				if strings.Contains(all.String(), n) {
					t.Errorf("there is a condition %s in\n%s", n, &all)
				}
			}
		})
	}
}
