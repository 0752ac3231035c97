package up

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// The 14 tests of the inference extension's own conformance suite, with their names: what each of them asserts, on
// manifests of the same shape, whose endpoint picker is that project's own. As in a cluster, a controller serves its
// class alone, and nothing is made up.
var suiteTests = []string{"EppUnAvailableFailOpen", "GatewayDestinationEndpointServed", "GatewayFollowingEPPRouting",
	"GatewayFollowingEPPRoutingWithDataParallelism", "GatewayWeightedAcrossTwoInferencePools",
	"HTTPRouteInvalidInferencePoolRef", "HTTPRouteMultipleGatewaysDifferentPools",
	"HTTPRouteMultipleRulesDifferentPools", "InferencePoolAccepted", "InferencePoolAppProtocol",
	"InferencePoolHTTPRoutePortValidation", "InferencePoolInvalidEPPService", "InferencePoolMissingEPPRef",
	"InferencePoolResolvedRefsCondition"}

// The suite's headers: the pods that the picker is to choose from, and Envoy's report of the one that served.
const (
	suiteSelection = "test-epp-endpoint-selection"
	suiteServed    = "x-conformance-test-served-endpoint"
	suiteClass     = "example.com/ours"
	suiteBody      = `{"model":"conformance-fake-model","prompt":"Write as if you were a critic: San Francisco"}`
)

// suitePool is a pool over the pods of a Deployment, with that picker.
func suitePool(name, app, ports, more string) string {
	return fmt.Sprintf(`
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %[1]s}
spec: {selector: {matchLabels: {app: %[2]s}}, targetPorts: [%[3]s], endpointPickerRef: {name: epp-%[1]s, port: {number: 9002}%[4]s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: epp-%[1]s}
spec:
  selector: {matchLabels: {epp: %[1]s}}
  template: {metadata: {labels: {epp: %[1]s}}, spec: {containers: [{name: epp, image: "example.com/gateway-api-inference-extension/lwepp:main", args: [--pool-name, %[1]s, --pool-namespace, default, --zap-encoder, json, --grpc-port, "9002", --grpc-health-port, "9003"]}]}}
---
apiVersion: v1
kind: Service
metadata: {name: epp-%[1]s}
spec: {selector: {epp: %[1]s}, ports: [{port: 9002}]}
`, name, app, ports, more)
}

// suiteServers are three pods with a container for each port.
func suiteServers(name string, ports ...int) string {
	var containers []string
	for _, p := range ports {
		containers = append(containers,
			fmt.Sprintf("{name: echo-%d, image: example.com/echo-basic, ports: [{containerPort: %d}]}", p, p))
	}
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[1]s}}
  template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [%[2]s]}}
`, name, strings.Join(containers, ", "))
}

func suiteRoute(name, parent, host, path string, refs ...dict) string {
	spec := dict{"parentRefs": []dict{{"name": parent}},
		"rules": []dict{{"matches": []dict{{"path": dict{"value": path}}}, "backendRefs": refs}}}
	if host != "" {
		spec["hostnames"] = []string{host}
	}
	return object("HTTPRoute", name, spec)
}

func suiteGateway(name string, port int, host ...string) string {
	listener := dict{"name": "http", "port": port, "protocol": "HTTP"}
	for _, h := range host {
		listener["hostname"] = h
	}
	return object("Gateway", name, dict{"gatewayClassName": "ours", "listeners": []dict{listener}})
}

func suiteObjects() string {
	with := func(ref dict, key string, value any) dict { ref[key] = value; return ref }
	return "\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: ours}\n" +
		"spec: {controllerName: " + suiteClass + "}\n" +
		suiteGateway("primary", 80) + suiteGateway("secondary", 80, "secondary.example.com") +
		suiteServers("primary-server", 3000) + suiteServers("secondary-server", 3000) +
		suiteServers("protocol-server", 3000, 3001) + suiteServers("dp-server", 3000, 3002, 3004) +
		suitePool("primary-pool", "primary-server", "{number: 3000}", "}}") +
		suitePool("secondary-pool", "secondary-server", "{number: 3000}", ", failureMode: FailOpen}}") +
		suitePool("h2c-pool", "protocol-server", "{number: 3001}", "}, appProtocol: kubernetes.io/h2c}") +
		suitePool("http-pool", "protocol-server", "{number: 3000}", "}, appProtocol: http}") +
		suitePool("dp-pool", "dp-server", "{number: 3000}, {number: 3002}, {number: 3004}", "}}") +
		strings.Replace(suitePool("invalid-pool", "primary-server", "{number: 3000}", "}}"),
			"endpointPickerRef: {name: epp-invalid-pool", "endpointPickerRef: {name: non-existent", 1) +
		strings.Replace(suitePool("missing-pool", "primary-server", "{number: 3000}", "}}"),
			", endpointPickerRef: {name: epp-missing-pool, port: {number: 9002}}}", "}", 1) +
		suiteRoute("primary-path", "primary", "", "/primary", pool("primary-pool")) +
		suiteRoute("secondary-path", "primary", "", "/secondary", pool("secondary-pool")) +
		suiteRoute("at-secondary", "secondary", "secondary.example.com", "/", pool("secondary-pool")) +
		suiteRoute("port-none", "primary", "", "/port-none", pool("primary-pool")) +
		suiteRoute("port-same", "primary", "", "/port-same", with(pool("primary-pool"), "port", 3000)) +
		suiteRoute("port-other", "primary", "", "/port-other", with(pool("primary-pool"), "port", 8888)) +
		suiteRoute("dp", "primary", "", "/dp", pool("dp-pool")) +
		suiteRoute("h2c", "primary", "", "/h2c", pool("h2c-pool")) +
		suiteRoute("http", "primary", "", "/http", pool("http-pool")) +
		suiteRoute("invalid", "primary", "", "/invalid", pool("invalid-pool")) +
		suiteRoute("missing", "primary", "", "/missing", pool("missing-pool")) +
		suiteRoute("nowhere", "primary", "", "/nowhere", pool("no-such-pool")) +
		suiteRoute("weighted", "primary", "", "/weighted", with(pool("primary-pool"), "weight", 70),
			with(pool("secondary-pool"), "weight", 30))
}

// suite is a run of the manifests, and its pods' addresses by their names.
type suite struct {
	*rig
	ip map[string]string
}

// echoOf is a server's answer.
type echoOf struct{ Pod, HTTPPort, Proto string }

// anyPod selects no pod for a request with a body.
const anyPod = "any"

// ask sends a request: with a selection as the suite does, else a GET.
func (s *suite) ask(gateway, path, selection string) (a answer, e echoOf) {
	s.t.Helper()
	at, method, body, headers := "", http.MethodGet, "", []string{}
	for _, l := range s.Addresses().Listeners {
		if l.Gateway == "default/"+gateway {
			at = l.URL
		}
	}
	if selection != "" {
		method, body = http.MethodPost, suiteBody
		headers = []string{"Content-Type", "application/json"}
	}
	if selection != "" && selection != anyPod {
		headers = append(headers, suiteSelection, selection)
	}
	if gateway == "secondary" {
		headers = append(headers, "Host", "secondary.example.com")
	}
	a = s.do(method, at+path, body, headers...)
	_ = json.Unmarshal(a.body, &e) // the status says where there is none
	return a, e
}

// expect wants an answer of a pod, by its name or what that begins with.
func (s *suite) expect(t *testing.T, gateway, path, selection, pod string) {
	t.Helper()
	if a, e := s.ask(gateway, path, selection); a.status != http.StatusOK || !strings.HasPrefix(e.Pod, pod) {
		t.Errorf("%s to %q: %d from %s, expected %s: %.200s", path, selection, a.status, e.Pod, pod, a.body)
	}
}

// condition wants a condition of an object at a Gateway, or that there is none.
func (s *suite) condition(t *testing.T, object, want string, there bool) {
	t.Helper()
	var all strings.Builder
	for _, x := range s.applied.Program.Status {
		all.WriteString(x.String())
	}
	if strings.Contains(all.String(), object+want) != there {
		t.Errorf("%s%s: expected %v in\n%s", object, want, there, &all)
	}
}

func (s *suite) accepted(t *testing.T, route, pool, gateway string) {
	t.Helper()
	for _, x := range []string{"HTTPRoute default/" + route, "InferencePool default/" + pool} {
		s.condition(t, x, " at default/"+gateway+": Accepted True Accepted", true)
		s.condition(t, x, " at default/"+gateway+": ResolvedRefs True ResolvedRefs", true)
	}
}

func TestInferenceConformance(t *testing.T) {
	t.Parallel()
	s := &suite{bringWith(t, Options{Objects: objectsOf(t, suiteObjects()), Controller: suiteClass}),
		map[string]string{}}
	for _, p := range s.Addresses().Pods {
		for number, at := range p.Ports {
			s.ip[p.Name] = strings.TrimSuffix(at, ":"+number)
		}
	}
	change := func(old, by string) {
		t.Helper()
		text := strings.Replace(suiteObjects(), old, by, 1)
		if err := s.Apply(t.Context(), objectsOf(t, text)); err != nil || text == suiteObjects() {
			t.Fatalf("%q to %q: %v", old, by, err)
		}
	}
	ports := []string{"3000", "3002", "3004"}
	tests := map[string]func(*testing.T){
		"InferencePoolAccepted": func(t *testing.T) { s.accepted(t, "primary-path", "primary-pool", "primary") },
		"HTTPRouteMultipleRulesDifferentPools": func(t *testing.T) {
			s.accepted(t, "primary-path", "primary-pool", "primary")
			s.accepted(t, "secondary-path", "secondary-pool", "primary")
			s.expect(t, "primary", "/primary", "", "primary-server")
			s.expect(t, "primary", "/secondary", "", "secondary-server")
			s.expect(t, "primary", "/primary", anyPod, "primary-server")
		},
		"HTTPRouteMultipleGatewaysDifferentPools": func(t *testing.T) {
			s.accepted(t, "at-secondary", "secondary-pool", "secondary")
			s.expect(t, "primary", "/primary", "", "primary-server")
			s.expect(t, "secondary", "/any", "", "secondary-server")
		},
		"HTTPRouteInvalidInferencePoolRef": func(t *testing.T) {
			s.condition(t, "HTTPRoute default/nowhere", " at default/primary: Accepted True Accepted", true)
			s.condition(t, "HTTPRoute default/nowhere", " at default/primary: ResolvedRefs False BackendNotFound", true)
		},
		"InferencePoolHTTPRoutePortValidation": func(t *testing.T) {
			for _, name := range []string{"port-none", "port-same", "port-other"} {
				s.accepted(t, name, "primary-pool", "primary")
				s.expect(t, "primary", "/"+name, "", "primary-server")
			}
		},
		"InferencePoolMissingEPPRef": func(t *testing.T) {
			s.condition(t, "HTTPRoute default/missing", " at default/primary: Accepted True Accepted", true)
			s.condition(t, "InferencePool default/missing-pool", " at default/primary: Accepted True", true)
		},
		"InferencePoolInvalidEPPService": func(t *testing.T) {
			s.condition(t, "HTTPRoute default/invalid", " at default/primary: Accepted True Accepted", true)
			s.condition(t, "InferencePool default/invalid-pool", " at default/primary: ResolvedRefs False", true)
			if a, _ := s.ask("primary", "/invalid", ""); a.status < 500 {
				t.Errorf("a pool without its picker: %d: %.200s", a.status, a.body)
			}
		},
		"GatewayFollowingEPPRouting": func(t *testing.T) {
			for _, numbers := range [][]int{{2}, {0, 1}, {0, 1, 2}} {
				var list, names []string
				for _, i := range numbers {
					name := fmt.Sprintf("primary-server-%d", i)
					list, names = append(list, s.ip[name]), append(names, name)
				}
				for range 30 {
					a, e := s.ask("primary", "/primary", strings.Join(list, ","))
					if a.status != http.StatusOK || !slices.Contains(names, e.Pod) {
						t.Fatalf("%d from %s, expected one of %v", a.status, e.Pod, names)
					}
				}
			}
		},
		"GatewayFollowingEPPRoutingWithDataParallelism": func(t *testing.T) {
			for _, c := range []map[int][]string{{1: ports}, {0: ports, 2: {"3002"}},
				{0: ports, 1: {"3000", "3004"}, 2: ports}} {
				var list []string
				for i, some := range c {
					ip := s.ip[fmt.Sprintf("dp-server-%d", i)]
					if len(some) == len(ports) {
						list = append(list, ip)
						continue
					}
					for _, p := range some {
						list = append(list, ip+":"+p)
					}
				}
				for range 30 {
					a, e := s.ask("primary", "/dp", strings.Join(list, ","))
					var i int
					if _, err := fmt.Sscanf(e.Pod, "dp-server-%d", &i); err != nil || a.status != http.StatusOK ||
						!slices.Contains(c[i], e.HTTPPort) {
						t.Fatalf("%v: %d from %s at %s", c, a.status, e.Pod, e.HTTPPort)
					}
				}
			}
		},
		"GatewayWeightedAcrossTwoInferencePools": func(t *testing.T) {
			var all []string
			for name, ip := range s.ip {
				if strings.HasPrefix(name, "primary-server") || strings.HasPrefix(name, "secondary-server") {
					all = append(all, ip)
				}
			}
			first := 0
			for range 200 {
				a, e := s.ask("primary", "/weighted", strings.Join(all, ","))
				if a.status != http.StatusOK || a.head.Get(suiteServed) != s.ip[e.Pod]+":3000" {
					t.Fatalf("%d from %s, served by %s", a.status, e.Pod, a.head.Get(suiteServed))
				}
				if strings.HasPrefix(e.Pod, "primary-server") {
					first++
				}
			}
			// 70:30 of 200 is 140 ± 6.5; five of these are one failure in two million runs.
			if first < 107 || first > 173 {
				t.Errorf("of 200 requests %d came to the first pool, expected about 140", first)
			}
		},
		"GatewayDestinationEndpointServed": func(t *testing.T) {
			for i := range 3 {
				name := fmt.Sprintf("primary-server-%d", i)
				s.expect(t, "primary", "/primary", s.ip[name], name)
				if a, _ := s.ask("primary", "/primary", s.ip[name]); a.head.Get(suiteServed) != s.ip[name]+":3000" {
					t.Errorf("%s: served by %s", name, a.head.Get(suiteServed))
				}
			}
		},
		"InferencePoolAppProtocol": func(t *testing.T) {
			for _, c := range []struct{ path, pods, port, proto string }{
				{"/h2c", "protocol-server", "3001", "HTTP/2.0"}, {"/http", "protocol-server", "3000", "HTTP/1.1"},
				{"/primary", "primary-server", "3000", "HTTP/1.1"}} {
				for i := range 3 {
					name := fmt.Sprintf("%s-%d", c.pods, i)
					endpoint := s.ip[name] + ":" + c.port
					a, e := s.ask("primary", c.path, endpoint)
					if e.Pod != name || a.head.Get(suiteServed) != endpoint || e.Proto != c.proto {
						t.Errorf("%s to %s: %d from %s by %s at %s", c.path, endpoint, a.status, e.Pod, e.Proto,
							a.head.Get(suiteServed))
					}
				}
			}
		},
		"EppUnAvailableFailOpen": func(t *testing.T) {
			s.accepted(t, "at-secondary", "secondary-pool", "secondary")
			s.expect(t, "secondary", "/any", s.ip["secondary-server-1"], "secondary-server-1")
			change("spec: {selector: {epp: secondary-pool}", "spec: {selector: {epp: gone}")
			eventually.Is(t, "the pool to be served without its picker", func() bool {
				a, e := s.ask("secondary", "/any", s.ip["secondary-server-1"])
				return a.status == http.StatusOK && a.head.Get(suiteServed) == "" &&
					strings.HasPrefix(e.Pod, "secondary-server")
			})
			s.accepted(t, "at-secondary", "secondary-pool", "secondary")
			if err := s.Apply(t.Context(), objectsOf(t, suiteObjects())); err != nil {
				t.Fatal(err)
			}
			eventually.Is(t, "the picker to be back", func() bool {
				a, _ := s.ask("secondary", "/any", s.ip["secondary-server-1"])
				return a.head.Get(suiteServed) == s.ip["secondary-server-1"]+":3000"
			})
		},
		"InferencePoolResolvedRefsCondition": func(t *testing.T) {
			s.accepted(t, "dp", "dp-pool", "primary")
			dp := suiteRoute("dp", "primary", "", "/dp", pool("dp-pool"))
			second := suiteRoute("dp-second", "secondary", "secondary.example.com", "/dp", pool("dp-pool"))
			change(dp, dp+second)
			s.accepted(t, "dp", "dp-pool", "primary")
			s.accepted(t, "dp-second", "dp-pool", "secondary")
			s.expect(t, "primary", "/dp", "", "dp-server")
			s.expect(t, "secondary", "/dp", "", "dp-server")
			change(dp, second)
			s.accepted(t, "dp-second", "dp-pool", "secondary")
			s.expect(t, "secondary", "/dp", "", "dp-server")
			if a, _ := s.ask("primary", "/dp", ""); a.status != http.StatusNotFound {
				t.Errorf("a route that is gone: %d", a.status)
			}
			s.condition(t, "InferencePool default/dp-pool", " at default/primary", false)
			change(dp, "")
			s.condition(t, "InferencePool default/dp-pool", " at ", false)
		},
	}
	for _, name := range suiteTests {
		t.Run(name, tests[name])
	}
	if len(tests) != len(suiteTests) {
		t.Errorf("%d tests, expected those of the suite: %v", len(tests), suiteTests)
	}
}
