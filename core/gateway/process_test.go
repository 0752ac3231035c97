package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// $(NAME) means what it means to Kubernetes
// (third_party/forked/golang/expansion/expand_test.go).
func TestExpand(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": "a", "B": "$(A)", "E": ""}
	for text, want := range map[string]string{
		"":                 "",
		"$(A)":             "a",
		"x$(A)$(A)y":       "xaay",
		"$(B)":             "$(A)", // no value is expanded again
		"$(E)":             "",
		"$(NONE)":          "$(NONE)",
		"$$(A)":            "$(A)",
		"$$$(A)":           "$a",
		"$$$$(A)":          "$$(A)",
		"$":                "$",
		"$$":               "$",
		"$A $":             "$A $",
		"$(A":              "$(A",
		"$()":              "$()",
		"$(A) $(NONE $(A)": "a $(NONE $(A)",
		"($(A))":           "(a)",
		"\n$(A)\n":         "\na\n",
	} {
		size := 0
		if got, err := expand(text, env, &size); got != want || err != nil {
			t.Errorf("%q: expected %q, got %q, %v", text, want, got, err)
		}
	}
}

// A variable knows those that are declared before it, and nothing that is declared
// takes more memory than Linux would start a process with.
func TestProcess(t *testing.T) {
	t.Parallel()
	c := Container{Env: []EnvVar{
		{Name: "LATER", Value: "$(Z)"}, {Name: "Z", Value: "z"}, {Name: "SELF", Value: "$(SELF)"},
		{Name: "TWICE", Value: "$(Z)$(Z)"}, {Name: "Z", Value: "$(Z)y"},
	}}
	x, err := c.Process(Place{})
	want := map[string]string{"LATER": "$(Z)", "Z": "zy", "SELF": "$(SELF)", "TWICE": "zz"}
	if err != nil || fmt.Sprint(x.Env) != fmt.Sprint(want) {
		t.Errorf("expected %v, got %v, %v", want, x.Env, err)
	}

	doubling := Container{Env: []EnvVar{{Name: "A", Value: "0123456789abcdef"}}}
	for range 60 {
		doubling.Env = append(doubling.Env, EnvVar{Name: "A", Value: "$(A)$(A)"})
	}
	many := Container{Env: []EnvVar{{Name: "A", Value: strings.Repeat("a", 100_000)}}}
	for i := range 100 {
		many.Env = append(many.Env, EnvVar{Name: fmt.Sprint("A", i), Value: "$(A)"})
	}
	open := Container{Env: []EnvVar{{Name: "A", Value: ")" + strings.Repeat("$(", 1<<20)}}}
	for _, c := range []Container{doubling, many, open} {
		if _, err := c.Process(Place{}); err == nil || !strings.Contains(err.Error(), "Linux starts no process") {
			t.Errorf("%v", err)
		}
	}
}

// A shell's script stands for the program that it runs, in each pod with the pod's own fields.
func TestProcessOfScript(t *testing.T) {
	t.Parallel()
	s := &Set{}
	if err := s.Add("m.yaml", []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers:
      - name: engine
        image: example.com/inference:1
        command: [/bin/bash, -c]
        args:
        - |
          export VLLM_KV_EVENT_ENABLED=$(echo true)
          exec vllm serve "$MODEL" --port ${PORT:-8000} \
            --kv-events-config "{\"enable_kv_cache_events\": true, \"topic\": \"kv@${POD_IP}:8000@$(MODEL)\"}"
        env:
        - {name: MODEL, value: a/b}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
`)); err != nil {
		t.Fatal(err)
	}
	c := &s.Workloads[0].Containers[0]
	port, _ := c.Flag("port")
	if r := c.Role(); r != RoleServer || port != "8000" || c.KVEvents() == nil {
		t.Errorf("expected a model server on 8000 with events, got %s, %q, %v", r, port, c.Line())
	}
	if got := fmt.Sprint(s.Warnings); !strings.Contains(got, "m.yaml:11") ||
		!strings.Contains(got, "line 1: $(echo true) is empty") {
		t.Errorf("expected a warning of the substitution, got %s", got)
	}
	x, err := c.Process(Place{IP: "10.0.0.7"})
	want := []string{"vllm", "serve", "a/b", "--port", "8000", "--kv-events-config",
		`{"enable_kv_cache_events": true, "topic": "kv@10.0.0.7:8000@a/b"}`}
	if err != nil || !slices.Equal(x.Args, want) || x.Env["MODEL"] != "a/b" {
		t.Errorf("expected %q, got %q, %v", want, x.Args, err)
	}
}
