package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/picker/strict"
)

// PickerConfig is an EndpointPickerConfig, in any of the forms that the
// picker knows. A zero PickerConfig is the picker's default.
type PickerConfig struct {
	// File is where the text stands, for messages: the scenario itself, or the
	// file that it names. Lines in the text are that file's lines.
	File string
	Text []byte
}

// String is where the text stands.
func (c PickerConfig) String() string { return c.File }

// Given reports whether the scenario configures the picker.
func (c *PickerConfig) Given() bool { return c.File != "" }

// pickerConfig takes a mapping as the configuration itself and text as the
// path of its file.
func (d *decoder) pickerConfig(n *yaml.Node, path string, c *PickerConfig) {
	switch {
	case n.Kind == yaml.MappingNode:
		text, err := d.written(n)
		if err != nil || len(text) > MaxFileBytes {
			d.add(n, path, "found a mapping that cannot be written out", "an EndpointPickerConfig")
			return
		}
		c.File, c.Text = d.file, text
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value != "":
		c.File = n.Value
	default:
		d.add(n, path, "found "+describe(n), "an EndpointPickerConfig, or the path of its file")
	}
}

// written is a mapping as a document of its own: the scenario's own lines,
// with as many empty ones in front as stand above, so that what is said about
// a line of it is about that line of the scenario. A mapping within braces, or
// with aliases, is written anew as one line.
func (d *decoder) written(n *yaml.Node) ([]byte, error) {
	if n.Style&yaml.FlowStyle == 0 && !aliased(n) {
		indent := strings.Repeat(" ", n.Column-1)
		out := bytes.Repeat([]byte("\n"), n.Line-1)
		for _, line := range d.lines[n.Line-1:] {
			rest, inside := strings.CutPrefix(line, indent)
			if !inside && strings.TrimSpace(line) != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				break
			}
			out = append(append(out, rest...), '\n')
		}
		return out, nil
	}
	if size(n, map[*yaml.Node]bool{}, maxNodes) > maxNodes {
		return nil, errors.New("an alias that contains itself, or too many")
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	text, err := json.Marshal(v) // YAML, too
	return append(bytes.Repeat([]byte("\n"), n.Line-1), text...), err
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

// size counts the values below n with aliases written out, up to a limit; one
// that contains itself counts as over it.
func size(n *yaml.Node, open map[*yaml.Node]bool, limit int) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if open[n] {
		return limit + 1
	}
	open[n] = true
	defer delete(open, n)
	count := 1
	for _, c := range n.Content {
		if count += size(c, open, limit-count); count > limit {
			return limit + 1
		}
	}
	return count
}

// checkPicker builds the picker once, to tell what is wrong with its
// configuration before anything starts.
func (s *Scenario) checkPicker(c *PickerConfig, path string) Problems {
	if !c.Given() {
		return nil
	}
	cfg, err := config.Read(c.Text)
	if err == nil {
		_, err = picker.New(cfg, plugins.Builtin(), picker.Options{})
	}
	if err == nil {
		return nil
	}
	var at *strict.Error
	if errors.As(err, &at) && at.Line > 0 {
		return Problems{{File: c.File, Line: at.Line, Column: 1, Path: strings.TrimSuffix(path+"."+at.Field, "."), Found: at.Msg}}
	}
	p := s.problem(path, err.Error(), "")
	if c.File != s.File {
		p.Found = fmt.Sprintf("%s: %v", c.File, err)
	}
	return Problems{p}
}
