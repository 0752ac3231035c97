package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway/shell"
)

// Place holds a pod's fields that its containers' variables may name.
type Place struct{ IP, Name, Namespace string }

// The most bytes that Linux starts a process with: one argument or variable
// (MAX_ARG_STRLEN), and all of them (a quarter of the usual stack of 8 MiB).
const (
	maxString  = 128 << 10
	maxStrings = 2 << 20
)

// Process returns the program that the container runs in a pod, with the arguments and the environment that Kubernetes
// starts it with. Where that is a shell with a script, Process returns the program that the script runs. A value may
// name the variables that are declared before it.
func (c *Container) Process(p Place) (shell.Command, error) {
	x, script, err := c.process(p)
	if script != nil {
		x = *script
	}
	x.Args = append(x.Args, c.added...)
	return x, err
}

// process returns what Kubernetes starts, and the program that this runs if it is a shell with a script.
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
				value = p.IP // which the pod would have to itself
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

// Line returns the command line of the program that the container runs, as its image's own command and arguments are
// not known. A script's program has the paths of the pod's fields in the place of their values.
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

// expand puts the values of variables in place of $(NAME), as Kubernetes does
// (third_party/forked/golang/expansion): values are not expanded again, $$ is a $,
// and a variable that nobody has declared stays as it is written. size counts the
// bytes that all texts have.
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
	last := strings.LastIndexByte(text, ')') // nothing is looked for behind it
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
