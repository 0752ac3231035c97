package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting replaces the value of one field of a scenario file. Path is the field's path as in errors, such as
// workload.rate or pools[0].replicas, with * for every entry of a list. Value is YAML; null removes the field. By is
// the flag and its value that set the field, empty for --set.
type Setting struct{ Path, Value, By string }

// String returns the setting in the form of a command line.
func (s Setting) String() string { return s.Path + "=" + s.Value }

// FileSetting sets a field to the path of a file that a flag names. A scenario's paths start at its own directory.
func FileSetting(scenario, path, flag, file string) Setting {
	by := flag + " " + file
	if dir := filepath.Dir(scenario); dir != "." && !filepath.IsAbs(file) {
		from, err := filepath.Abs(dir)
		to, bad := filepath.Abs(file)
		if rel, no := filepath.Rel(from, to); err == nil && bad == nil && no == nil {
			file = rel
		}
	}
	return Setting{path, strconv.Quote(file), by}
}

// ParseSetting reads path=value.
func ParseSetting(text string) (Setting, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok {
		return Setting{}, fmt.Errorf("%q has no =; expected a field's path and a value such as workload.rate=20", text)
	}
	_, err := steps(path)
	return Setting{Path: path, Value: value}, err
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

// WithSettings returns the text of a scenario in which some fields have other values. file is the text's name in
// messages.
func WithSettings(file string, data []byte, settings []Setting) ([]byte, error) {
	if len(settings) == 0 {
		return data, nil
	}
	if _, err := Parse(file, data); err != nil {
		return nil, err // with its lines
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	for _, s := range settings {
		var value yaml.Node
		if err := yaml.Unmarshal([]byte(s.Value), &value); err != nil {
			return nil, Problems{{Path: s.Path, Found: fmt.Sprintf("--set with %q: %v", s.Value, err),
				Expected: "a value in YAML"}}
		}
		if value.Kind == 0 { // nothing at all
			value = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: nullTag}}}
		}
		path, err := steps(s.Path)
		if err != nil {
			return nil, err
		}
		if at, expected := set(doc.Content[0], path, value.Content[0]); expected != "" {
			return nil, Problems{{Path: s.Path, Found: "the file has " + at, Expected: expected}}
		}
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err := enc.Encode(&doc)
	return out.Bytes(), err
}

// parseWith parses a file in which some fields have other values.
func parseWith(file string, data []byte, settings []Setting) (*Scenario, error) {
	changed, err := WithSettings(file, data, settings)
	if err != nil {
		return nil, err
	}
	s, err := Parse(file, changed)
	if problems := (Problems)(nil); errors.As(err, &problems) {
		problems = slices.Clone(problems)
		for i := range problems {
			if p := &problems[i]; p.File == file {
				p.File, p.Line, p.Column = file+" with "+strings.Join(behind(p.Path, settings), " "), 0, 0
			}
		}
		return nil, problems
	}
	return s, err
}

// behind returns the flags that set a field, or one above or below it; all flags if none does.
func behind(path string, settings []Setting) (words []string) {
	found := false
	for _, x := range settings {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(x.Path), `\*`, `\d+`)
		this := regexp.MustCompile("^"+pattern+`($|[.\[])`).MatchString(path) || strings.HasPrefix(x.Path, path+".")
		if this && !found {
			words, found = nil, true
		}
		if word := cmp.Or(x.By, "--set "+x.String()); this == found && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// nullTag is the tag of a value that YAML takes for nothing.
const nullTag = "!!null"

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
	if n.Kind == yaml.ScalarNode && (n.Tag == nullTag || n.Value == "") {
		*n = yaml.Node{Kind: yaml.MappingNode}
	}
	if n.Kind != yaml.MappingNode {
		return "no field " + s.name + " there", "the path of a field"
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == s.name {
			if len(path) == 1 && value.Tag == nullTag {
				n.Content = slices.Delete(n.Content, i, i+2)
				return "", ""
			}
			return set(n.Content[i+1], path[1:], value)
		}
	}
	if value.Tag == nullTag { // also below a field that is not there
		return "", ""
	}
	below := &yaml.Node{Kind: yaml.ScalarNode, Tag: nullTag}
	if found, expected = set(below, path[1:], value); expected == "" {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: s.name}, below)
	}
	return found, expected
}
