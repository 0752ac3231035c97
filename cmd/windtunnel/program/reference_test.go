package program

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// overview returns the page of commands, each with a description and a typical example.
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
