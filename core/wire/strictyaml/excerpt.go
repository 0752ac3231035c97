package strictyaml

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Excerpt returns a mapping, or the text of a scalar that is itself YAML, as a document of its own. Empty lines above
// it keep each line at its number in the file, so a message about a position in the excerpt is also right for the file.
// Where that is not possible (a mapping within braces, one with aliases to other places, a text in quotes), the first
// line is right.
func (v Value) Excerpt() []byte {
	if v.node == nil {
		return nil
	}
	above := bytes.Repeat([]byte("\n"), max(0, v.node.Line-1))
	if v.node.Kind != yaml.ScalarNode {
		if text := append(above, v.block(v.node.Line, v.node.Column-1)...); v.node.Style&yaml.FlowStyle == 0 &&
			same(text, v.node) {
			return text
		}
		text, _ := yaml.Marshal(alone(v.node)) // the node has been parsed before
		return append(above, text...)
	}
	if v.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return append(above, v.node.Value...)
	}
	above = append(above, '\n') // the text begins below the key
	if first, _, _ := strings.Cut(strings.TrimLeft(v.node.Value, "\n"), "\n"); v.node.Style&yaml.LiteralStyle != 0 &&
		first != "" {
		for i, line := range v.lines(v.node.Line) {
			if indent, is := strings.CutSuffix(strings.TrimRight(line, "\r"), strings.TrimRight(first, "\r")); is &&
				strings.Trim(indent, " ") == "" {
				return append(append(above, bytes.Repeat([]byte("\n"), i)...), v.block(v.node.Line+1+i, len(indent))...)
			}
			if strings.TrimSpace(line) != "" {
				break
			}
		}
	}
	return append(above, v.node.Value...)
}

// lines returns the document's lines after the first skip ones.
func (v Value) lines(skip int) []string {
	all := strings.Split(string(v.doc.text), "\n")
	return all[min(skip, len(all)):]
}

// block returns the lines from a line on, up to the first one with less than this indentation, in columns.
func (v Value) block(line, indent int) []byte {
	var out []byte
	margin := strings.Repeat(" ", indent)
	for i, text := range v.lines(line - 1) {
		bare := strings.TrimSpace(text)
		switch {
		case i == 0: // the text before it on its line belongs to another value
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

// same reports whether a text is a document with the same value as a node.
func same(text []byte, n *yaml.Node) bool {
	var doc yaml.Node
	return yaml.Unmarshal(text, &doc) == nil && len(doc.Content) == 1 && equal(doc.Content[0], n)
}

func equal(a, b *yaml.Node) bool {
	a, b = resolve(a), resolve(b)
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && slices.EqualFunc(a.Content, b.Content, equal)
}

// alone returns a node that stands by itself: with aliases written out, and in block style.
func alone(n *yaml.Node) *yaml.Node {
	n = resolve(n)
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: n.Style &^ yaml.FlowStyle}
	for _, c := range n.Content {
		out.Content = append(out.Content, alone(c))
	}
	return out
}
