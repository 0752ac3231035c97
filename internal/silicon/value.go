package silicon

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of files from outside.
const (
	maxJSON   = 128 << 20 // bytes
	maxYAML   = 4 << 20
	maxDepth  = 64
	maxValues = 1 << 20
	maxRows   = 10_000
	// maxItems of a list are kept, more only in lists of results: the details of requests are not read.
	maxItems = 100
)

// value is a value of a file with its line and its name in the one above. A missing value is a scalar without text.
type value struct {
	line   int
	up     *value
	name   string
	text   string // of a scalar
	fields map[string]*value
	items  []*value
}

func (v *value) given() bool { return v.text != "" || v.fields != nil || v.items != nil }

// at returns a field by its path of names and indices. A missing field has the line of the nearest one above.
func (v *value) at(path string) *value {
	for name := range strings.SplitSeq(path, ".") {
		next := v.fields[name]
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v.items) {
			next = v.items[i]
		}
		if next == nil {
			next = &value{line: v.line, up: v, name: name}
		}
		v = next
	}
	return v
}

// path returns the names from the top, with a colon and a space; "" for the top itself.
func (v *value) path() string {
	text := ""
	for ; v.up != nil; v = v.up {
		if v.up.up != nil && !strings.HasPrefix(v.name, "[") {
			text = "." + v.name + text
		} else {
			text = v.name + text
		}
	}
	if text != "" {
		text += ": "
	}
	return text
}

// first returns the first given field of several.
func (v *value) first(paths ...string) *value {
	for _, p := range paths {
		if f := v.at(p); f.given() {
			return f
		}
	}
	return v.at(paths[0])
}

// bad returns an error about a value.
func (v *value) bad(file, found, expected string) error {
	return fmt.Errorf("%s:%d: %sfound %s; expected %s", file, v.line, v.path(), found, expected)
}

// builder makes values within the limits.
type builder struct {
	values int
}

func (b *builder) make(line int, up *value, name string, depth int) (*value, error) {
	if b.values++; b.values > maxValues || depth > maxDepth {
		return nil, fmt.Errorf("found more than %d values or %d levels; expected results without the details of "+
			"requests", maxValues, maxDepth)
	}
	return &value{line: line, up: up, name: name}, nil
}

// parse returns the documents of a file: JSON values one after the other, YAML documents, or the lines of a CSV file
// under its header.
func parse(file string, data []byte) ([]*value, error) {
	text := bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	limit, read := maxYAML, parseYAML
	head := text
	for found := true; found && bytes.HasPrefix(head, []byte("#")); {
		_, head, found = bytes.Cut(head, []byte("\n"))
	}
	head, _, _ = bytes.Cut(head, []byte("\n"))
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("%s: found nothing; expected %s", file, formats)
	case text[0] == '{' || text[0] == '[':
		limit, read = maxJSON, parseJSON
	case bytes.Contains(head, []byte("ttft_ms")) && bytes.Contains(head, []byte(",")):
		read = parseCSV
	}
	if len(data) > limit {
		return nil, fmt.Errorf("%s: %d bytes; at most %d are read: leave out the details of requests", file, len(data),
			limit)
	}
	all, err := read(data)
	if err == nil && len(all) > maxRows {
		err = fmt.Errorf("%d: found more than %d results; expected fewer", all[maxRows].line, maxRows)
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%w", file, err)
	}
	return all, nil
}

// jsonReader reads JSON's tokens and counts lines.
type jsonReader struct {
	builder
	*json.Decoder
	data []byte
	line int
	read int64 // bytes whose lines are counted
}

func (j *jsonReader) at() int {
	end := min(j.InputOffset(), int64(len(j.data)))
	j.line += bytes.Count(j.data[j.read:end], []byte("\n"))
	j.read = end
	return j.line
}

func parseJSON(data []byte) (all []*value, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	j := &jsonReader{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	j.UseNumber()
	for {
		token, err := j.Token()
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		var v *value
		if err == nil {
			v, err = j.value(token, nil, "", 0)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%d: %w; expected JSON of %s", j.at(), err, formats)
		}
		all = append(all, v)
	}
}

// value reads the rest of the value that begins with a token.
func (j *jsonReader) value(token json.Token, up *value, name string, depth int) (*value, error) {
	v, err := j.make(j.at(), up, name, depth)
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		v.fields = map[string]*value{}
	case json.Delim('['):
		v.items = []*value{}
	case nil:
		return v, nil
	default:
		v.text = fmt.Sprint(token)
		return v, nil
	}
	for j.More() {
		n := len(v.items)
		if n >= maxItems && (n > maxRows || depth > 1 || v.items[0].fields == nil) {
			var skipped json.RawMessage
			if err := j.Decode(&skipped); err != nil {
				return nil, err
			}
			continue
		}
		token, err := j.Token()
		if err != nil {
			return nil, err
		}
		if v.fields == nil {
			item, err := j.value(token, v, fmt.Sprintf("[%d]", n), depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
			continue
		}
		name, _ := token.(string)
		if token, err = j.Token(); err != nil {
			return nil, err
		}
		if v.fields[name], err = j.value(token, v, name, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = j.Token()
	return v, err
}

func parseYAML(data []byte) (all []*value, err error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	b := &builder{}
	for {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf(" %w; expected %s", err, formats)
		}
		v, err := b.yaml(&n, nil, "", 0)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n.Line, err)
		}
		all = append(all, v)
	}
}

func (b *builder) yaml(n *yaml.Node, up *value, name string, depth int) (*value, error) {
	v, err := b.make(n.Line, up, name, depth)
	if err != nil {
		return nil, err
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return b.yaml(n.Content[0], up, name, depth+1)
	case yaml.AliasNode:
		return b.yaml(n.Alias, up, name, depth+1)
	case yaml.MappingNode:
		v.fields = map[string]*value{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			v.fields[name], err = b.yaml(n.Content[i+1], v, name, depth+1)
			if err != nil {
				return nil, err
			}
		}
	case yaml.SequenceNode:
		v.items = []*value{}
		for i, item := range n.Content {
			next, err := b.yaml(item, v, fmt.Sprintf("[%d]", i), depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, next)
		}
	default:
		if n.Tag != "!!null" {
			v.text = n.Value
		}
	}
	return v, nil
}

// columns of a CSV file, those of data/silicon.csv first. NOTICE.md there describes them.
var columns = []string{"model", "accelerator", "precision", "tensor_parallel", "data_parallel", "expert_parallel",
	"input_tokens", "output_tokens", "lengths", "concurrency", "vllm_versions", "measurements", "ttft_ms", "tpot_ms",
	"request_rate", "requests", "median_ttft_ms", "median_tpot_ms"}

func parseCSV(data []byte) (all []*value, err error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.Comment = '#'
	var header []string
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("%d: %w; expected the columns %s", bad.Line, bad.Err, strings.Join(columns, ","))
		}
		line, _ := r.FieldPos(0)
		if header == nil {
			for _, name := range record {
				header = append(header, strings.TrimSpace(name))
			}
			for i, name := range header {
				if !slices.Contains(columns, name) {
					return nil, fmt.Errorf("%d: column %d: found %.40q; expected one of %s", line, i+1, name,
						strings.Join(columns, ", "))
				}
			}
			continue
		}
		v := &value{line: line, fields: map[string]*value{}}
		for i, text := range record {
			v.fields[header[i]] = &value{line: line, up: v, name: header[i], text: strings.TrimSpace(text)}
		}
		all = append(all, v)
	}
}

// reader reads numbers and texts, and keeps the first error.
type reader struct {
	file string
	err  error
}

func (r *reader) fail(v *value, found, expected string) {
	r.err = cmp.Or(r.err, v.bad(r.file, found, expected))
}

// number returns a number of at least 0, or 0 for a missing one.
func (r *reader) number(v *value) float64 {
	if !v.given() {
		return 0
	}
	n, err := strconv.ParseFloat(v.text, 64)
	if v.text == "" {
		r.fail(v, "a list or fields", "a number")
	} else if err != nil || !(n >= 0 && n <= 1e15) {
		r.fail(v, fmt.Sprintf("%.40q", v.text), "a number from 0 to 1e15")
		return 0
	}
	return n
}

// infinite reports whether a value is inf in Python's, JSON's or YAML's spelling.
func infinite(v *value) bool {
	n, err := strconv.ParseFloat(strings.TrimPrefix(v.text, "."), 64)
	return err == nil && math.IsInf(n, 1)
}

// whole returns a number of at least 0 without a fraction.
func (r *reader) whole(v *value) int {
	n := r.number(v)
	if n != math.Trunc(n) || n > math.MaxInt32 {
		r.fail(v, fmt.Sprintf("%.40q", v.text), fmt.Sprintf("a whole number up to %d", math.MaxInt32))
		return 0
	}
	return int(n)
}

// need is number for a field that must be given.
func (r *reader) need(v *value, what string) float64 {
	if !v.given() {
		r.fail(v, "nothing", what)
	}
	return r.number(v)
}
