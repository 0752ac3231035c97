package objects

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Meta is what every object has.
type Meta struct {
	Namespace   string
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Created     string // creationTimestamp, "2006-01-02T15:04:05Z"; "" when the file has none
	File        string
	Line        int

	order int // in which the objects were seen first
}

// Set is the objects of any number of files.
type Set struct {
	Pools      []Pool
	Pods       []Pod
	Objectives []Objective
	Rewrites   []Rewrite
	Warnings   []string

	// DefaultNamespace is that of objects which name none; "" is "default".
	DefaultNamespace string

	seen  map[string]*Meta
	count int
}

// groups are the API groups whose kinds are read; of other groups and kinds
// nothing is said, so that a directory may hold any manifests.
var groups = map[string]map[string]bool{
	"InferencePool":         {GroupV1: true, GroupX: true, GroupKServe: true},
	"InferenceObjective":    {GroupLLMD: true, GroupX: true},
	"InferenceModelRewrite": {GroupLLMD: true, GroupX: true},
	"Pod":                   {"": true},
}

// The API groups.
const (
	GroupV1     = "inference.networking.k8s.io"
	GroupX      = "inference.networking.x-k8s.io" // before v1, and document 002
	GroupKServe = "serving.kserve.io"             // document 003
	GroupLLMD   = "llm-d.ai"
)

// Add reads a file of any number of YAML documents. On an error the file's
// objects may be in the Set in part: throw it away.
func (s *Set) Add(file string, data []byte) (err error) {
	if len(data) > MaxFileBytes {
		return &Error{File: file, Line: 1, Msg: fmt.Sprintf("%d bytes are more than the %d allowed", len(data), MaxFileBytes)}
	}
	r := &reader{file: file, left: maxValues}
	defer func() {
		if p := recover(); p == errTooMuch { //nolint:errorlint // what was thrown is the value itself
			err = &Error{File: file, Line: 1, Msg: fmt.Sprintf("the file unfolds to more than %d values", maxValues)}
		} else if p != nil {
			panic(p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			s.Warnings = append(s.Warnings, r.warnings...)
			return errors.Join(r.errs...)
		case err != nil:
			return fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) > 0 {
			s.object(r, r.at(doc.Content[0], "", doc.Line), false)
		}
	}
}

// object reads one object, or the items of a List.
func (s *Set) object(r *reader, v value, listed bool) {
	r.object = ""
	if !v.is(yaml.MappingNode, "a Kubernetes object") {
		return
	}
	kind, api := v.get("kind"), v.get("apiVersion")
	if kind.text() == "List" {
		if listed {
			v.fail("a List inside a List")
			return
		}
		for _, item := range v.get("items").list() {
			s.object(r, item, true)
		}
		return
	}
	group, _, versioned := strings.Cut(api.text(), "/")
	if !versioned {
		group = ""
	}
	if !groups[kind.text()][group] {
		return
	}
	if s.count++; s.count > MaxObjects {
		v.fail("more than %d objects", MaxObjects)
		return
	}
	meta := s.meta(r, v, kind.text())
	v.unique(0)
	body := map[string]func(value){"apiVersion": func(value) {}, "kind": func(value) {}, "metadata": func(value) {}, "status": func(value) {}}
	switch kind.text() {
	case "InferencePool":
		s.Pools = append(s.Pools, readPool(v, body, meta, group))
	case "InferenceObjective":
		s.Objectives = append(s.Objectives, readObjective(v, body, meta))
	case "InferenceModelRewrite":
		s.Rewrites = append(s.Rewrites, readRewrite(v, body, meta))
	case "Pod":
		s.Pods = append(s.Pods, readPod(v, meta))
	}
}

func (s *Set) meta(r *reader, v value, kind string) Meta {
	m := v.get("metadata")
	meta := Meta{
		Namespace: m.get("namespace").text(), Name: m.get("name").text(),
		Labels: m.get("labels").texts(), Annotations: m.get("annotations").texts(),
		Created: m.get("creationTimestamp").text(), File: r.file, Line: v.line, order: s.count,
	}
	if meta.Namespace == "" {
		if meta.Namespace = s.DefaultNamespace; meta.Namespace == "" {
			meta.Namespace = "default"
		}
	}
	if meta.Name == "" {
		m.get("name").fail("%s has no name", kind)
	}
	if c := meta.Created; c != "" && (len(c) != len("2006-01-02T15:04:05Z") || c[10] != 'T' || c[19] != 'Z') {
		m.get("creationTimestamp").fail("expected a time like 2006-01-02T15:04:05Z, got %q", c)
		meta.Created = ""
	}
	r.object = kind + " " + meta.Namespace + "/" + meta.Name
	if s.seen == nil {
		s.seen = map[string]*Meta{}
	}
	if first := s.seen[r.object]; first != nil {
		v.fail("the object is given twice, first at %s:%d", first.File, first.Line)
	}
	s.seen[r.object] = &meta
	return meta
}

// Ages remembers in which order objects appeared, over several readings of
// the same files: the age that they would have in a cluster. The zero value
// is ready to use.
type Ages struct {
	order map[string]int
	next  int
}

// Settle gives the Set's objects the ages that they had before; new ones are
// the youngest. Objects that are gone are forgotten.
func (a *Ages) Settle(s *Set) {
	order := map[string]int{}
	age := func(kind string, m *Meta) {
		key := kind + " " + m.Namespace + "/" + m.Name
		n, known := a.order[key]
		if !known {
			a.next++
			n = a.next
		}
		m.order, order[key] = n, n
	}
	for i := range s.Pools {
		age("InferencePool", &s.Pools[i].Meta)
	}
	for i := range s.Objectives {
		age("InferenceObjective", &s.Objectives[i].Meta)
	}
	for i := range s.Rewrites {
		age("InferenceModelRewrite", &s.Rewrites[i].Meta)
	}
	a.order = order
}

// older orders objects by creation. Those with a timestamp come before those
// without, whose age is the order in which they were seen.
func older(a, b Meta) int {
	switch {
	case a.Created != "" && b.Created == "":
		return -1
	case a.Created == "" && b.Created != "":
		return 1
	case a.Created != b.Created:
		return strings.Compare(a.Created, b.Created)
	}
	return a.order - b.order
}
