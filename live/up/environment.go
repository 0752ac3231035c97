package up

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// environ are a container's environment variables.
type environ map[string]string

// lookup is os.LookupEnv for the container.
func (e environ) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// The most bytes that Linux starts a process with: one argument or variable
// (MAX_ARG_STRLEN), and all of them (a quarter of the usual stack of 8 MiB).
const (
	maxString  = 128 << 10
	maxStrings = 2 << 20
)

// started is what Kubernetes starts a container with in a pod: its arguments and its
// environment, each $(NAME) expanded. An error is an *InvalidError.
func started(c *gateway.Container, p *pod) ([]string, environ, error) {
	env, size, err := environment(c, p)
	if err != nil {
		return nil, nil, err
	}
	args, err := line(c, env, size)
	return args, env, err
}

// environment is a container's, and its size in bytes. A value may name the variables
// that are declared before it.
func environment(c *gateway.Container, p *pod) (environ, int, error) {
	env, size := environ{}, 0
	for _, e := range c.Env {
		value := ""
		switch e.From {
		case "":
			var err error
			if value, err = expand(e.Value, env, &size); err != nil {
				return nil, 0, &InvalidError{fmt.Errorf("env %s: %w", e.Name, err)}
			}
			if value == "localhost" || value == "127.0.0.1" {
				value = p.ip.String() // which the pod would have to itself
			}
		case "status.podIP", "status.hostIP":
			value = p.ip.String()
		case "metadata.name":
			value = p.name
		case "metadata.namespace":
			value = p.namespace
		default:
			continue
		}
		env[e.Name] = value
	}
	return env, size, nil
}

// line is a container's command line behind size bytes of environment. What a shell is
// given is split at blanks.
func line(c *gateway.Container, env environ, size int) ([]string, error) {
	var out []string
	for _, word := range c.Line() {
		word, err := expand(word, env, &size)
		if err != nil {
			return nil, &InvalidError{fmt.Errorf("its command line: %w", err)}
		}
		out = append(out, word)
	}
	shell := len(out) > 2 && strings.HasSuffix(out[0], "sh")
	if shell && strings.HasPrefix(out[1], "-") && strings.HasSuffix(out[1], "c") {
		return strings.Fields(strings.ReplaceAll(strings.Join(out[2:], " "), "\\\n", " ")), nil
	}
	return out, nil
}

// expand puts the values of variables in place of $(NAME), as Kubernetes does
// (third_party/forked/golang/expansion): values are not expanded again, $$ is a $,
// and a variable that nobody has declared stays as it is written. size counts the
// bytes that all texts have.
func expand(text string, env environ, size *int) (string, error) {
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
