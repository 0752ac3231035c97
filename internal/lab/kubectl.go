package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Kubectl answers the commands of kubectl that document 003 uses, from a running lab. Without -n, it looks in all
// namespaces.
type Kubectl struct {
	Dir      Dir
	In       io.Reader
	Out, Err io.Writer
	// Edit opens an editor for a file and returns once the user has closed it.
	Edit func(ctx context.Context, path string) error

	call
	state State
	set   *gateway.Set // nil if the manifests have mistakes
	pods  []pod
	docs  []document
}

// call is a command line of kubectl.
type call struct {
	verb                                         string
	args, command                                []string
	namespace, selector, output, container, file string
	tail                                         int
	since                                        time.Duration // 0: from the beginning
	all, labels, interactive, tty                bool
	previous, follow                             bool
	sortBy                                       string
}

// ExitError is the exit code of a program that Kubectl has run in a pod. The program has printed the reason.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("command terminated with exit code %d", int(e)) }

// verbs are the commands, with their forms.
var verbs = map[string]string{
	"get":          "KIND [NAME] [-l SELECTOR] [-o wide|yaml|json|name] [--show-labels]",
	"describe":     "KIND NAME",
	"logs":         "POD | -l SELECTOR [-c CONTAINER] [--tail N] [--since 1m] [--previous] [-f]",
	"exec":         "POD [-c CONTAINER] -- PROGRAM ARGUMENTS",
	"top":          "pods",
	"apply":        "-f FILE",
	"edit":         "KIND NAME",
	"port-forward": "POD LOCAL:REMOTE",
}

// ParseKubectl reads a command line of kubectl.
func ParseKubectl(args []string) (c call, err error) {
	c.tail = -1
	value := map[string]*string{"n": &c.namespace, "namespace": &c.namespace, "l": &c.selector, "selector": &c.selector,
		"o": &c.output, "output": &c.output, "c": &c.container, "container": &c.container, "f": &c.file,
		"filename": &c.file, "sort-by": &c.sortBy, "tail": new(string), "since": new(string)}
	yes := map[string]*bool{"A": &c.all, "all-namespaces": &c.all, "show-labels": &c.labels, "i": &c.interactive,
		"stdin": &c.interactive, "t": &c.tty, "tty": &c.tty, "p": &c.previous, "previous": &c.previous,
		"follow": &c.follow}
	if slices.Contains(args, "logs") {
		delete(value, "f")
		yes["f"] = &c.follow
	}
	for i := 0; i < len(args); i++ {
		name, given, assigned := strings.Cut(args[i], "=")
		word := strings.TrimLeft(name, "-")
		switch {
		case args[i] == "--":
			c.command, i = args[i+1:], len(args)
		case !strings.HasPrefix(name, "-") || name == "-":
			c.args = append(c.args, args[i])
		case yes[word] != nil:
			*yes[word] = given != "false"
		case word == "it" || word == "ti":
			c.interactive, c.tty = true, true
		case value[word] == nil:
			return c, fmt.Errorf("flag %s: expected a flag that document 003 uses: %s", name, forms())
		case assigned:
			*value[word] = given
		case i+1 == len(args):
			return c, fmt.Errorf("flag %s: expected a value after it", name)
		default:
			i++
			*value[word] = args[i]
		}
	}
	if n := *value["tail"]; n != "" {
		if c.tail, err = strconv.Atoi(n); err != nil {
			return c, fmt.Errorf("--tail: found %q, expected a number of lines, -1 for all", n)
		}
	}
	if s := *value["since"]; s != "" {
		if c.since, err = time.ParseDuration(s); err != nil || c.since <= 0 {
			return c, fmt.Errorf("--since: found %q, expected a duration such as 5s, 2m or 3h", s)
		}
	}
	if len(c.args) == 0 || verbs[c.args[0]] == "" {
		return c, fmt.Errorf("found %q, expected a command that document 003 uses: %s", strings.Join(args, " "),
			forms())
	}
	c.verb, c.args = c.args[0], c.args[1:]
	if c.verb == "exec" && len(c.command) == 0 && len(c.args) > 1 { // kubectl's old form
		c.args, c.command = c.args[:1], c.args[1:]
	}
	return c, nil
}

func forms() string {
	names := slices.Sorted(maps.Keys(verbs))
	texts := terminal.Texts(len(names), func(i int) string { return "kubectl " + names[i] + " " + verbs[names[i]] })
	return strings.Join(texts, "; ")
}

// Run runs a command line of kubectl.
func (k *Kubectl) Run(ctx context.Context, args []string) (err error) {
	if k.call, err = ParseKubectl(args); err != nil {
		return err
	}
	if k.state, err = k.Dir.State(); err != nil {
		return err
	}
	if k.docs, err = k.Dir.documents(); err != nil {
		return err
	}
	k.set, _ = up.Load([]string{k.Dir.Manifests()}, nil) // with mistakes, pods are still there
	k.pods = podsOf(k.state.Addresses, k.set)
	switch k.verb {
	case "get", "describe":
		return k.get()
	case "logs":
		return k.logs(ctx)
	case "exec":
		p, err := k.onePod()
		if err != nil {
			return err
		}
		return k.exec(ctx, p)
	case "top":
		return k.top(ctx)
	case "apply":
		return k.apply()
	case "edit":
		return k.edit(ctx)
	}
	return k.forward(ctx)
}
