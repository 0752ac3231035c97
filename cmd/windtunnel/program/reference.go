package program

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// allHelp prints the help of every command, as Markdown.
func allHelp(o *outside) error {
	parser, err := newParser(&cli{}, o)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, leaf := range append([]*kong.Node{nil}, parser.Model.Leaves(true)...) {
		command := commandOf(leaf)
		var text bytes.Buffer
		inner := *o
		inner.Stdout = &text
		if err := execute(append(slices.Clone(command), "--help"), &inner); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s```\n", strings.Join(append([]string{"windtunnel"}, command...), " "), &text)
	}
	_, err = io.WriteString(o.Stdout, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// commandOf returns the words of a command, none for nil.
func commandOf(n *kong.Node) (words []string) {
	for ; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		words = append([]string{n.Name}, words...)
	}
	return words
}
