// Package completion completes command lines for shells: the command completion, and the last word of a line. Begin
// with Line.
package completion

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/live/modelserver/dropin"
)

// Command prints shell code that makes the shell run windtunnel with the line as COMP_LINE and offer its output.
type Command struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the examples.
func (Command) Help() string {
	return `Examples:
  windtunnel completion bash >> ~/.bashrc
  windtunnel completion zsh >> ~/.zshrc
  windtunnel completion fish > ~/.config/fish/completions/windtunnel.fish`
}

// Run prints the code.
func (c *Command) Run(o *console.Console) error {
	text := "complete -o default -C windtunnel windtunnel\n"
	switch c.Shell {
	case "zsh":
		text = "autoload -U +X bashcompinit && bashcompinit\n" + text
	case "fish":
		text = "complete -c windtunnel -a '(COMP_LINE=(commandline -cp) windtunnel)'\n"
	}
	_, err := fmt.Fprint(o.Stdout, text)
	return err
}

// Line prints the possible last words of a line: commands, flags, or values of a flag. It prints nothing where
// a file is likely, which shells complete themselves.
func Line(model *kong.Application, line string, o *console.Console) error {
	if at, ok := o.Env("COMP_POINT"); ok {
		if n, err := strconv.Atoi(at); err == nil && n >= 0 && n < len(line) {
			line = line[:n]
		}
	}
	words := strings.Fields(line)
	last := ""
	if len(words) > 1 && !strings.HasSuffix(line, " ") {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	node := model.Node
	for i, w := range words {
		if w == "--" && node.Name == "modelserver" {
			return candidates(o, last, dropin.Flags())
		}
		if next := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == w }); i > 0 && next >= 0 {
			node = node.Children[next]
		}
	}
	var flags []string
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			name := "--" + f.Name
			if flags = append(flags, name); len(words) > 1 && words[len(words)-1] == name && f.Enum != "" {
				return candidates(o, last, f.EnumSlice())
			}
		}
	}
	if strings.HasPrefix(last, "-") {
		return candidates(o, last, flags)
	}
	var names []string
	for _, n := range node.Children {
		names = append(names, n.Name)
	}
	if node == model.Node {
		names = append(names, "help")
	}
	for _, arg := range node.Positional {
		names = append(names, arg.EnumSlice()...)
	}
	return candidates(o, last, names)
}

func candidates(o *console.Console, prefix string, all []string) error {
	for _, c := range all {
		if c != "" && strings.HasPrefix(c, prefix) {
			if _, err := fmt.Fprintln(o.Stdout, c); err != nil {
				return err
			}
		}
	}
	return nil
}
