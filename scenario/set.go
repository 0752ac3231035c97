package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting replaces the value of one field of a scenario file. Path is the field's path as in errors, such as
// workload.rate or pools[0].replicas, with * for every entry of a list. Value is YAML.
type Setting struct{ Path, Value string }

// String returns the setting in the form of a command line.
func (s Setting) String() string { return s.Path + "=" + s.Value }

// ParseSetting reads path=value.
func ParseSetting(text string) (Setting, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok {
		return Setting{}, fmt.Errorf("%q has no =; expected a field's path and a value such as workload.rate=20", text)
	}
	_, err := steps(path)
	return Setting{path, value}, err
}

// step is a field's name, or the entry of a list: a number, or -1 for all entries.
type step struct {
	name  string
	entry int
}

func steps(path string) (out []step, err error) {
	bad := fmt.Errorf("%q is no path of a field; expected one such as workload.rate or "+
		"pools[0].modelServer.outputTokens", path)
	for name := range strings.SplitSeq(path, ".") {
		name, rest, _ := strings.Cut(name, "[")
		if name == "" {
			return nil, bad
		}
		out = append(out, step{name: name})
		for rest != "" {
			entry, more, closed := strings.Cut(rest, "]")
			n, err := strconv.Atoi(entry)
			if entry == "*" {
				n, err = -1, nil
			}
			if err != nil || n < -1 || !closed || more != "" && more[0] != '[' {
				return nil, bad
			}
			out = append(out, step{entry: n})
			rest = strings.TrimPrefix(more, "[")
		}
	}
	return out, nil
}

// parseWith parses a file in which some fields have other values.
func parseWith(file string, data []byte, settings []Setting) (*Scenario, error) {
	if _, err := Parse(file, data); err != nil {
		return nil, err // with its lines
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	words := make([]string, len(settings))
	for i, s := range settings {
		words[i] = "--set " + s.String()
		var value yaml.Node
		if err := yaml.Unmarshal([]byte(s.Value), &value); err != nil {
			return nil, Problems{{Path: s.Path, Found: fmt.Sprintf("--set with %q: %v", s.Value, err),
				Expected: "a value in YAML"}}
		}
		if value.Kind == 0 { // nothing at all
			value = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!null"}}}
		}
		path, err := steps(s.Path)
		if err != nil {
			return nil, err
		}
		if at, expected := set(doc.Content[0], path, value.Content[0]); expected != "" {
			return nil, Problems{{Path: s.Path, Found: "the file has " + at, Expected: expected}}
		}
	}
	changed, err := yaml.Marshal(&doc)
	if err != nil {
		return nil, err
	}
	s, err := Parse(file, changed)
	if problems := (Problems)(nil); errors.As(err, &problems) {
		problems = slices.Clone(problems)
		for i := range problems {
			p := &problems[i]
			p.File, p.Line, p.Column = file+" with "+strings.Join(words, " "), 0, 0
		}
		return nil, problems
	}
	return s, err
}

// set sets the value of a field. If it cannot, it returns what it found, and what it expected.
func set(n *yaml.Node, path []step, value *yaml.Node) (found, expected string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if len(path) == 0 {
		*n = *value
		return "", ""
	}
	s := path[0]
	if s.name == "" {
		if n.Kind != yaml.SequenceNode {
			return "no list there", "the path of an entry that there is"
		}
		if s.entry >= len(n.Content) {
			return fmt.Sprintf("%d entries there", len(n.Content)), "an entry that there is, the first is [0]"
		}
		for i, entry := range n.Content {
			if s.entry < 0 || s.entry == i {
				if found, expected = set(entry, path[1:], value); expected != "" {
					return found, expected
				}
			}
		}
		return "", ""
	}
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || n.Value == "") {
		*n = yaml.Node{Kind: yaml.MappingNode}
	}
	if n.Kind != yaml.MappingNode {
		return "no field " + s.name + " there", "the path of a field"
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == s.name {
			return set(n.Content[i+1], path[1:], value)
		}
	}
	below := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	if found, expected = set(below, path[1:], value); expected == "" {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: s.name}, below)
	}
	return found, expected
}
