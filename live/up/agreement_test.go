package up

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/wire/header"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// backends are three Services whose pods answer with what they were asked.
func backends(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: echo, image: example.com/echo, ports: [{containerPort: 3000}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 8080, targetPort: 3000}]}
`, n)
	}
	return b.String()
}

// object writes one object as JSON, which is YAML too.
func object(kind, name string, spec map[string]any) string {
	text, err := json.Marshal(
		map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
			"metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		panic(err)
	}
	return "\n---\n" + string(text) + "\n"
}

type dict = map[string]any

var (
	hostnames  = []string{"", "example.com", "*.example.com", "a.example.com", "*.a.example.com", "other.org"}
	askedHosts = []string{"example.com", "a.example.com", "b.example.com", "x.a.example.com", "x.b.example.com",
		"other.org", "none.org", "A.example.com", "example.com:8080"}
	prefixes   = []string{"/", "/a", "/a/", "/a/b", "/ab", "/a/b/c", "/v1"}
	askedPaths = []string{"/", "/a", "/a/", "/a/b", "/ab", "/abc", "/a/b/c", "/a/b/c/d", "/v1/x", "/v1/", "/zzz",
		"/a//b", "/a/./b", "/a/x/../b"}
	headerList = []string{"x-a", "x-b"}
	values     = []string{"1", "2", "one two"}
)

func anyOf(t *rapid.T, label string, list []string) string {
	return rapid.SampledFrom(list).Draw(t, label)
}

func chance(t *rapid.T, label string, of int) bool {
	return rapid.IntRange(1, of).Draw(t, label) == 1
}

func drawMatch(t *rapid.T) dict {
	m := dict{}
	switch rapid.IntRange(0, 4).Draw(t, "path") {
	case 0, 1:
		m["path"] = dict{"type": "PathPrefix", "value": anyOf(t, "prefix", prefixes)}
	case 2:
		m["path"] = dict{"type": "Exact", "value": anyOf(t, "exact", prefixes)}
	case 3:
		m["path"] = dict{"type": "RegularExpression",
			"value": anyOf(t, "regex", []string{"/a.*", "/[a-z]+", "/v1/(x|y)", ".*c"})}
	}
	if chance(t, "method", 4) {
		m["method"] = anyOf(t, "verb", []string{"GET", "POST"})
	}
	conditions := func() (out []dict) {
		for _, name := range headerList {
			if chance(t, "condition", 4) {
				x := dict{"name": name, "value": anyOf(t, "value", values)}
				if chance(t, "expression", 4) {
					x["type"], x["value"] = "RegularExpression", "[0-9]"
				}
				out = append(out, x)
			}
		}
		return out
	}
	if h := conditions(); h != nil {
		m["headers"] = h
	}
	if q := conditions(); q != nil {
		m["queryParams"] = q
	}
	return m
}

func drawModifier(t *rapid.T) dict {
	m := dict{}
	for i, what := range []string{"set", "add"} {
		if chance(t, what, 2) {
			m[what] = []dict{{"name": []string{"X-A", "x-c"}[rapid.IntRange(0, 1).Draw(t, "name")],
				"value": fmt.Sprintf("%s %d%%", what, i)}}
		}
	}
	if chance(t, "remove", 2) {
		m["remove"] = []string{"x-b"}
	}
	return m
}

func drawPath(t *rapid.T, prefix bool) dict {
	if prefix && chance(t, "replacePrefix", 2) {
		return dict{"type": "ReplacePrefixMatch",
			"replacePrefixMatch": anyOf(t, "to", []string{"/", "", "/new", "/new/", "/n/m"})}
	}
	return dict{"type": "ReplaceFullPath", "replaceFullPath": anyOf(t, "full", []string{"/full", "/full/path/"})}
}

func drawRule(t *rapid.T) dict {
	var matches []dict
	for range rapid.IntRange(0, 2).Draw(t, "matches") {
		matches = append(matches, drawMatch(t))
	}
	rule := dict{}
	if matches != nil {
		rule["matches"] = matches
	}
	prefix := len(matches) == 0
	if len(matches) == 1 {
		p, _ := matches[0]["path"].(dict)
		prefix = p == nil || p["type"] == "PathPrefix"
	}
	var filters []dict
	if chance(t, "modifies", 3) {
		filters = append(filters, dict{"type": "RequestHeaderModifier", "requestHeaderModifier": drawModifier(t)})
	}
	if chance(t, "redirects", 5) {
		r := dict{}
		if chance(t, "scheme", 2) {
			r["scheme"] = anyOf(t, "to", []string{"http", "https"})
		}
		if chance(t, "host", 2) {
			r["hostname"] = "new.example.com"
		}
		if chance(t, "port", 3) {
			r["port"] = rapid.SampledFrom([]int{80, 443, 8080}).Draw(t, "number")
		}
		if chance(t, "code", 2) {
			r["statusCode"] = rapid.SampledFrom([]int{301, 302, 303, 307, 308}).Draw(t, "status")
		}
		if chance(t, "newPath", 2) {
			r["path"] = drawPath(t, prefix)
		}
		rule["filters"] = append(filters, dict{"type": "RequestRedirect", "requestRedirect": r})
		return rule
	}
	if chance(t, "rewrites", 3) {
		r := dict{}
		if chance(t, "host", 2) {
			r["hostname"] = "inner.example.com"
		}
		if chance(t, "newPath", 2) {
			r["path"] = drawPath(t, prefix)
		}
		filters = append(filters, dict{"type": "URLRewrite", "urlRewrite": r})
	}
	if filters != nil {
		rule["filters"] = filters
	}
	var refs []dict
	for _, name := range []string{"one", "two", "missing"} {
		if chance(t, name, 2) {
			ref := dict{"name": name, "port": 8080}
			if chance(t, "weighs", 3) {
				ref["weight"] = rapid.IntRange(0, 3).Draw(t, "weight")
			}
			if chance(t, "own", 5) {
				ref["filters"] = []dict{
					{"type": "RequestHeaderModifier",
						"requestHeaderModifier": dict{"set": []dict{{"name": "x-d", "value": name}}}}}
			}
			refs = append(refs, ref)
		}
	}
	if refs != nil {
		rule["backendRefs"] = refs
	}
	return rule
}

func drawObjects(t *rapid.T) string {
	var b strings.Builder
	b.WriteString(backends("one", "two"))
	var listeners []dict
	for i, h := range hostnames[:rapid.IntRange(1, 4).Draw(t, "listeners")] {
		l := dict{"name": fmt.Sprintf("l%d", i), "port": 80, "protocol": "HTTP"}
		if h != "" {
			l["hostname"] = h
		}
		listeners = append(listeners, l)
	}
	b.WriteString(object("Gateway", "g", dict{"gatewayClassName": "any", "listeners": listeners}))
	for i := range rapid.IntRange(1, 5).Draw(t, "routes") {
		parent := dict{"name": "g"}
		if chance(t, "section", 3) {
			parent["sectionName"] = fmt.Sprintf("l%d", rapid.IntRange(0, len(listeners)-1).Draw(t, "which"))
		}
		spec := dict{"parentRefs": []dict{parent}}
		var names []string
		for _, h := range hostnames[1:] {
			if chance(t, "hostname", 4) {
				names = append(names, h)
			}
		}
		if names != nil {
			spec["hostnames"] = names
		}
		var rules []dict
		for range rapid.IntRange(1, 3).Draw(t, "rules") {
			rules = append(rules, drawRule(t))
		}
		spec["rules"] = rules
		b.WriteString(object("HTTPRoute", fmt.Sprintf("r%d", i), spec))
	}
	return b.String()
}

// core/gateway predicts how the real Envoy handles a request, for any routes.
func TestEnvoyAgrees(t *testing.T) {
	t.Parallel()
	first := backends("one", "two") +
		object("Gateway", "g", dict{"gatewayClassName": "any",
			"listeners": []dict{{"name": "l0", "port": 80, "protocol": "HTTP"}}})
	r := bring(t, objectsOf(t, first))
	at := r.url(80)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawObjects(t)
		s := &gateway.Set{}
		if err := s.Add("drawn.yaml", []byte(text)); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if err := r.Apply(r.t.Context(), s); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		table := r.applied.Program.Gateways[0].Ports[0].Table
		_, portText, _ := strings.Cut(strings.TrimPrefix(at, "http://"), ":")
		port, _ := strconv.Atoi(portText)
		for range 40 {
			q := gateway.Request{Method: anyOf(t, "method", []string{"GET", "POST"}),
				Host: anyOf(t, "host", askedHosts), Target: anyOf(t, "path", askedPaths)}
			query := url.Values{}
			for _, name := range headerList {
				if chance(t, "has", 2) {
					q.Headers = append(q.Headers, header.Header{Name: name, Value: anyOf(t, "value", values)})
				}
				if chance(t, "asks", 2) {
					query.Add(name, anyOf(t, "value", values))
				}
			}
			if len(query) > 0 {
				q.Target += "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
			}
			asked++
			compare(t, &client, at, table, q, port, text)
		}
	})
	t.Logf("%d requests", asked)
}

// compare sends a request and checks the result against the table's answer, for any of its backends that was drawn.
func compare(t *rapid.T, client *http.Client, at string, table *gateway.Table, q gateway.Request, port int,
	text string) {
	req, err := http.NewRequest(q.Method, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = q.Target // as it is written, dots and all
	req.Host = q.Host
	for _, h := range q.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%v\n%+v", err, q)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Location"))
	if resp.StatusCode == http.StatusOK {
		var e echoed
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		got = fmt.Sprintf("%s %s %s", e.Pod, e.Host, e.Path)
		for _, name := range []string{"X-A", "X-B", "X-C", "X-D"} {
			got += fmt.Sprintf(" %s", strings.Join(e.Headers[name], ","))
		}
	}
	var possible []string
	table.Decide(q, port, func(weights int) int {
		for n := range weights {
			possible = append(possible, describe(table.Decide(q, port, func(int) int { return n })))
		}
		return 0
	})
	if possible == nil {
		possible = []string{describe(table.Decide(q, port, func(int) int { return 0 }))}
	}
	if !slices.Contains(possible, got) {
		t.Fatalf("%+v:\nEnvoy says %q\nexpected   %q\n%s", q, got, slices.Compact(possible), text)
	}
}

func describe(v gateway.Verdict) string {
	if v.Status != 0 {
		return fmt.Sprintf("%d %s", v.Status, v.Location)
	}
	out := fmt.Sprintf("%s-0 %s %s", v.Share.Backend.Name, v.Host, v.Target)
	for _, name := range []string{"x-a", "x-b", "x-c", "x-d"} {
		var values []string
		for _, h := range v.Headers {
			if h.Name == name {
				values = append(values, h.Value)
			}
		}
		out += " " + strings.Join(values, ",")
	}
	return out
}
