package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway/shell"
)

// Place holds the fields of a pod that its containers' variables may reference.
type Place struct{ IP, Name, Namespace string }

// Linux's limits at the start of a process, in bytes: for one argument or variable (MAX_ARG_STRLEN), and for all of
// them (a quarter of the usual stack of 8 MiB).
const (
	maxString  = 128 << 10
	maxStrings = 2 << 20
)

// Process returns the program that the container runs in a pod, with the arguments and the environment that Kubernetes
// sets. Where that program is a shell with a script, Process returns the program that the script runs. A value may
// reference the variables declared before it.
func (c *Container) Process(p Place) (shell.Command, error) {
	x, script, err := c.process(p)
	if script != nil {
		x = *script
	}
	x.Args = append(x.Args, c.added...)
	return x, err
}

// process returns the program that Kubernetes starts and, if that is a shell with a script, the program that the script
// runs.
func (c *Container) process(p Place) (x shell.Command, script *shell.Command, err error) {
	size := 0
	x.Env = map[string]string{}
	for _, e := range c.Env {
		value := ""
		switch e.From {
		case "":
			if value, err = expand(e.Value, x.Env, &size); err != nil {
				return x, nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
			if value == "localhost" || value == "127.0.0.1" {
				value = p.IP // a real pod has its loopback address to itself
			}
		case fromMap:
			value = e.Value
		case "status.podIP", "status.hostIP":
			value = p.IP
		case "metadata.name":
			value = p.Name
		case "metadata.namespace":
			value = p.Namespace
		default:
			continue
		}
		x.Env[e.Name] = value
	}
	for _, word := range slices.Concat(c.Command, c.Args) {
		if word, err = expand(word, x.Env, &size); err != nil {
			return x, nil, fmt.Errorf("its command line: %w", err)
		}
		x.Args = append(x.Args, word)
	}
	script, err = shell.Read(x.Args, x.Env, func(args []string) bool {
		return (&Container{Command: args}).Role() != RoleOther
	})
	return x, script, err
}

// Line returns the command line of the program that the container runs. The image's own command and arguments are
// unknown. For a script's program, paths of the pod's fields stand in for their values.
func (c *Container) Line() []string {
	if c.script.Args != nil {
		return slices.Concat(c.script.Args, c.added)
	}
	return slices.Concat(c.Command, c.Args, c.added)
}

// readScript finds the program that the container's script runs, if it has a script.
func (c *Container) readScript() {
	_, script, err := c.process(Place{"status.podIP", "metadata.name", "metadata.namespace"})
	if script == nil || err != nil {
		return // the container's start reports the error
	}
	if c.script = *script; c.Role() == RoleOther {
		return
	}
	for _, note := range script.Notes {
		c.At.Warn(note, "", "")
	}
}

// expand replaces $(NAME) by the values of variables, as Kubernetes does (third_party/forked/golang/expansion). It does
// not expand values again, it turns $$ into $, and it leaves an undeclared variable as written. size counts the bytes
// of all texts.
func expand(text string, env map[string]string, size *int) (string, error) {
	var out strings.Builder
	add := func(s string) error {
		if *size += len(s); out.Len()+len(s) >= maxString || *size > maxStrings {
			return fmt.Errorf("%.40q expands to too much: Linux starts no process with more than %d bytes in one "+
				"argument "+
				"or variable, or %d in all: shorten the values that it names", text, maxString-1, maxStrings)
		}
		out.WriteString(s)
		return nil
	}
	last := strings.LastIndexByte(text, ')') // expand searches no further
	for at := 0; ; {
		before, _, found := strings.Cut(text[at:], "$")
		if err := add(before); err != nil || !found {
			return out.String(), err
		}
		at += len(before) + 1
		put := "$"
		switch {
		case strings.HasPrefix(text[at:], "$"):
			at++
		case strings.HasPrefix(text[at:], "(") && last > at:
			name, _, _ := strings.Cut(text[at+1:], ")")
			value, declared := env[name]
			if put = value; !declared {
				put = "$(" + name + ")"
			}
			at += len(name) + 2
		}
		if err := add(put); err != nil {
			return "", err
		}
	}
}
