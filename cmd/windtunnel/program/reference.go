package program

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// allHelp prints the help of every command, as Markdown.
func allHelp(o *outside) error {
	leaves, err := commands(o)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, command := range append([][]string{nil}, leaves...) {
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

// commands returns the words of every command.
func commands(o *outside) (list [][]string, err error) {
	parser, err := newParser(&cli{}, o)
	if err != nil {
		return nil, err
	}
	for _, leaf := range parser.Model.Leaves(true) {
		list = append(list, commandOf(leaf))
	}
	return list, nil
}

func commandOf(n *kong.Node) (words []string) {
	for ; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		words = append([]string{n.Name}, words...)
	}
	return words
}

// overview returns the page of commands: of each what it is for, and the usual example.
func overview(o *outside) (string, error) {
	parser, err := newParser(&cli{}, o)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Command line\n\nWritten from the program's own help; a test keeps the two equal. " +
		"[flags.md](flags.md) has every flag and further\nexamples, as `windtunnel help --all` prints them.\n")
	for _, group := range groups {
		fmt.Fprintf(&b, "\n## %s\n", group.Title)
		for _, leaf := range parser.Model.Leaves(true) {
			if g := leaf.ClosestGroup(); g == nil || g.Key != group.Key {
				continue
			}
			command := "windtunnel " + strings.Join(commandOf(leaf), " ")
			fmt.Fprintf(&b, "\n### [%s](flags.md#%s)\n\n%s\n", command, strings.ReplaceAll(command, " ", "-"),
				leaf.Help)
			text, example := essence(leaf.Detail, command)
			if text != "" {
				fmt.Fprintf(&b, "%s\n", text)
			}
			if example != "" {
				fmt.Fprintf(&b, "\n```\n%s\n```\n", example)
			}
		}
	}
	b.WriteString("\n## Exit codes\n\n| code | name | means |\n|--:|---|---|\n")
	for _, c := range exit.Codes() {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", c.Code, c.Name, c.Means)
	}
	b.WriteString("\nOnly results and the ready line go to standard output; everything else goes to standard error.\n")
	return b.String(), nil
}

// essence returns the first paragraph of a command's help, and its first example.
func essence(help, command string) (text, example string) {
	for paragraph := range strings.SplitSeq(help, "\n\n") {
		if text == "" && !strings.HasPrefix(paragraph, "Examples:") && !strings.HasPrefix(paragraph, "  ") {
			text = paragraph
		}
		for line := range strings.Lines(paragraph) {
			if example == "" && strings.HasPrefix(line, "  "+command) {
				example = strings.TrimSpace(line)
			}
		}
	}
	return text, example
}
