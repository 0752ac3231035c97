package objects

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Meta is the metadata of every object.
type Meta struct {
	Namespace   string
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Created     string // creationTimestamp, "2006-01-02T15:04:05Z"; "" if the file has none
	File        string
	Line        int

	order int // in which the objects were first seen
}

// Object returns the Meta of the object that embeds it.
func (m *Meta) Object() *Meta { return m }

// Set holds the objects of any number of files.
type Set struct {
	Pools      []Pool
	Pods       []Pod
	Objectives []Objective
	Rewrites   []Rewrite
	Models     []Model
	Warnings   []string

	// DefaultNamespace is the namespace of objects without one; "" is "default".
	DefaultNamespace string

	// Others returns a reader for objects of further kinds, and for Pods that no controller has made and that run
	// nowhere yet; nil to ignore them. Objects of a cluster-wide kind have no
	// namespace.
	Others func(kind, group string) (read func(strictyaml.Value, Meta), cluster bool)

	seen  map[string]*Meta
	count int
}

// groups are the API groups whose kinds are read. Other groups and kinds are ignored silently, so that a directory may
// hold any manifests.
var groups = map[string]map[string]bool{
	"InferencePool":         {GroupV1: true, GroupX: true, GroupKServe: true},
	"InferenceObjective":    {GroupLLMD: true, GroupX: true},
	"InferenceModelRewrite": {GroupLLMD: true, GroupX: true},
	"InferenceModel":        {GroupX: true},
	"Pod":                   {"": true},
}

// The API groups.
const (
	GroupV1     = "inference.networking.k8s.io"
	GroupX      = "inference.networking.x-k8s.io" // before v1, and document 002
	GroupKServe = "serving.kserve.io"             // before v1, and document 002
	GroupLLMD   = "llm-d.ai"
)

// Limits on what one Set reads.
const (
	MaxFileBytes = strictyaml.MaxBytes
	MaxObjects   = 20000
)

type value = strictyaml.Value

// Add reads a file of any number of YAML documents. The error has every mistake in it. After an error, discard the Set:
// it may have some of the file's objects.
func (s *Set) Add(file string, data []byte) error {
	doc, err := strictyaml.Parse(data, strictyaml.Options{File: file, Kubernetes: true, Many: true, WarnUnknown: true})
	if err != nil {
		return err
	}
	for _, v := range doc.Values {
		s.object(v, false)
	}
	s.Warnings = append(s.Warnings, doc.Warnings()...)
	return doc.Problems().Err()
}

// object reads one object, or the items of a List.
func (s *Set) object(v value, listed bool) {
	if !v.IsMapping() {
		if v.Given() {
			v.Fail(v.Found(), "a Kubernetes object", "")
		}
		return
	}
	kind, api := v.Get("kind").Text(), v.Get("apiVersion").Text()
	if kind == "List" {
		if listed {
			v.Fail("a List inside a List", "objects", "")
			return
		}
		for _, item := range v.Get("items").List() {
			s.object(item, true)
		}
		return
	}
	group, _, versioned := strings.Cut(api, "/")
	if !versioned {
		group = ""
	}
	var read func(strictyaml.Value, Meta)
	cluster := false
	if !groups[kind][group] {
		if s.Others != nil {
			read, cluster = s.Others(kind, group)
		}
		if read == nil {
			return
		}
	}
	if s.count++; s.count > MaxObjects {
		v.Fail(fmt.Sprintf("more than %d objects", MaxObjects), "", "")
		return
	}
	meta := s.meta(v, kind)
	name := meta.Namespace + "/" + meta.Name
	if cluster {
		meta.Namespace, name = "", meta.Name
	}
	v = v.Named(kind + " " + name + ": ")
	if first := s.seen[v.Path()]; first != nil {
		v.Fail(fmt.Sprintf("the object is given twice, first at %s:%d", first.File, first.Line), "each object once", "")
	}
	s.seen[v.Path()] = &meta
	v.CheckKeys()
	if read != nil {
		read(v, meta)
		return
	}
	body := map[string]func(value){"apiVersion": func(value) {}, "kind": func(value) {}, "metadata": func(value) {},
		"status": func(value) {}}
	switch kind {
	case "InferencePool":
		s.Pools = append(s.Pools, readPool(v, body, meta, group))
	case "InferenceObjective":
		s.Objectives = append(s.Objectives, readObjective(v, body, meta))
	case "InferenceModelRewrite":
		s.Rewrites = append(s.Rewrites, readRewrite(v, body, meta))
	case "InferenceModel":
		s.Models = append(s.Models, readModel(v, body, meta))
	case "Pod":
		p := readPod(v, meta)
		planned := p.IP == "" && v.Get("spec").Get("containers").Given() &&
			!v.Get("metadata").Get("ownerReferences").Given()
		if planned && s.Others != nil {
			read, _ = s.Others(kind, group)
		}
		if read != nil {
			read(v, meta)
			return
		}
		s.Pods = append(s.Pods, p)
	}
}

func (s *Set) meta(v value, kind string) Meta {
	if s.seen == nil {
		s.seen = map[string]*Meta{}
	}
	m := v.Get("metadata").Mapping()
	meta := Meta{
		Namespace: m.Get("namespace").Text(), Name: m.Get("name").Text(),
		Labels: m.Get("labels").Texts(), Annotations: m.Get("annotations").Texts(),
		Created: m.Get("creationTimestamp").Text(), File: v.File(), Line: v.Line(), order: s.count,
	}
	if meta.Namespace != "" {
		checkText(m.Get("namespace"), meta.Namespace, spaceForm, 63, "a namespace of lower-case letters, digits and -")
	}
	meta.Namespace = cmp.Or(meta.Namespace, s.DefaultNamespace, "default")
	if meta.Name == "" {
		m.Get("name").Fail(m.Get("name").Found(), "the name of the "+kind, "")
	} else {
		checkText(m.Get("name"), meta.Name, nameForm, 253, "a name of lower-case letters, digits, - and .")
	}
	checkKeys(m.Get("labels"), strings.Clone)
	checkKeys(m.Get("annotations"), strings.ToLower)
	for _, p := range m.Get("labels").Pairs() {
		checkText(p.Value, meta.Labels[p.Name], labelForm, 63, aLabel)
	}
	if c := meta.Created; c != "" && (len(c) != len("2006-01-02T15:04:05Z") || c[10] != 'T' || c[19] != 'Z') {
		m.Get("creationTimestamp").Fail(m.Get("creationTimestamp").Found(), "a time like 2006-01-02T15:04:05Z", "")
		meta.Created = ""
	}
	return meta
}

// Ages keeps the order in which objects appeared over several readings of the same files, like their age in a cluster.
// The zero value is ready to use.
type Ages struct {
	order map[string]int
	next  int
}

// Settle gives the Set's objects their ages from earlier readings; new ones are the youngest. It drops the ages of
// objects that are gone.
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
	for i := range s.Models {
		age("InferenceModel", &s.Models[i].Meta)
	}
	for i := range s.Objectives {
		age("InferenceObjective", &s.Objectives[i].Meta)
	}
	for i := range s.Rewrites {
		age("InferenceModelRewrite", &s.Rewrites[i].Meta)
	}
	a.order = order
}

// Older orders objects by creation, as Gateway API resolves conflicts. Objects with a timestamp come before those
// without, whose age is the order in which they were seen.
func Older(a, b Meta) int {
	const last = "~" // after every timestamp
	return cmp.Or(strings.Compare(cmp.Or(a.Created, last), cmp.Or(b.Created, last)), a.order-b.order)
}

// Count returns how many objects were read.
func (s *Set) Count() int { return s.count }
