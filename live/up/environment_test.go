package up

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// $(NAME) means what it means to Kubernetes
// (third_party/forked/golang/expansion/expand_test.go).
func TestExpand(t *testing.T) {
	t.Parallel()
	env := environ{"A": "a", "B": "$(A)", "E": ""}
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
func TestEnvironment(t *testing.T) {
	t.Parallel()
	c := gateway.Container{Env: []gateway.EnvVar{
		{Name: "LATER", Value: "$(Z)"}, {Name: "Z", Value: "z"}, {Name: "SELF", Value: "$(SELF)"},
		{Name: "TWICE", Value: "$(Z)$(Z)"}, {Name: "Z", Value: "$(Z)y"},
	}}
	_, env, err := started(&c, &pod{})
	want := environ{"LATER": "$(Z)", "Z": "zy", "SELF": "$(SELF)", "TWICE": "zz"}
	if err != nil || fmt.Sprint(env) != fmt.Sprint(want) {
		t.Errorf("expected %v, got %v, %v", want, env, err)
	}

	doubling := gateway.Container{Env: []gateway.EnvVar{{Name: "A", Value: "0123456789abcdef"}}}
	for range 60 {
		doubling.Env = append(doubling.Env, gateway.EnvVar{Name: "A", Value: "$(A)$(A)"})
	}
	many := gateway.Container{Env: []gateway.EnvVar{{Name: "A", Value: strings.Repeat("a", 100_000)}}}
	for i := range 100 {
		many.Env = append(many.Env, gateway.EnvVar{Name: fmt.Sprint("A", i), Value: "$(A)"})
	}
	open := gateway.Container{Env: []gateway.EnvVar{{Name: "A", Value: ")" + strings.Repeat("$(", 1<<20)}}}
	for _, c := range []gateway.Container{doubling, many, open} {
		_, _, err := started(&c, &pod{})
		if _, invalid := errors.AsType[*InvalidError](err); !invalid ||
			!strings.Contains(err.Error(), "Linux starts no process") {
			t.Errorf("%v", err)
		}
	}
}
