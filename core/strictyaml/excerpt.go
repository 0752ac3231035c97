package strictyaml

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Excerpt is a mapping, or the text of a scalar that is YAML itself, as a
// document of its own. Each of its lines stands where it stands in the file,
// below as many empty ones as are above it there, so that what is said about a
// place in it is about that place of the file. What cannot be cut out so (a
// mapping within braces, one with aliases, a text in quotes) begins on the right
// line.
func (v Value) Excerpt() []byte {
	if v.node == nil {
		return nil
	}
	above := bytes.Repeat([]byte("\n"), max(0, v.node.Line-1))
	if v.node.Kind != yaml.ScalarNode {
		if v.node.Style&yaml.FlowStyle == 0 && !aliased(v.node) {
			return append(above, v.block(v.node.Line, v.node.Column-1)...)
		}
		text, _ := json.Marshal(v.Any()) // which is YAML, too
		return append(above, text...)
	}
	if v.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return append(above, v.node.Value...)
	}
	above = append(above, '\n') // the text begins below the key
	if first, _, _ := strings.Cut(strings.TrimLeft(v.node.Value, "\n"), "\n"); v.node.Style&yaml.LiteralStyle != 0 && first != "" {
		for i, line := range v.lines(v.node.Line) {
			if indent, is := strings.CutSuffix(strings.TrimRight(line, "\r"), strings.TrimRight(first, "\r")); is && strings.Trim(indent, " ") == "" {
				return append(append(above, bytes.Repeat([]byte("\n"), i)...), v.block(v.node.Line+1+i, len(indent))...)
			}
			if strings.TrimSpace(line) != "" {
				break
			}
		}
	}
	return append(above, v.node.Value...)
}

// lines are the document's, without the first so many.
func (v Value) lines(skip int) []string {
	all := strings.Split(string(v.doc.text), "\n")
	return all[min(skip, len(all)):]
}

// block is what stands from a line on at an indentation of so many columns.
func (v Value) block(line, indent int) []byte {
	var out []byte
	margin := strings.Repeat(" ", indent)
	for i, text := range v.lines(line - 1) {
		bare := strings.TrimSpace(text)
		switch {
		case i == 0: // what stands before it on its line is not its own
			runes := []rune(text)
			text = margin + string(runes[min(indent, len(runes)):])
		case bare == "" || strings.HasPrefix(bare, "#") && len(text)-len(strings.TrimLeft(text, " ")) < indent:
			text = ""
		case !strings.HasPrefix(text, margin) || strings.HasPrefix(text, "---") || strings.HasPrefix(text, "..."):
			return out
		}
		out = append(append(out, text...), '\n')
	}
	return out
}

func aliased(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, c := range n.Content {
		if aliased(c) {
			return true
		}
	}
	return false
}
