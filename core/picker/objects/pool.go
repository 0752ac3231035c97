package objects

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/picker"
)

// Pool is an InferencePool of any group.
type Pool struct {
	Meta
	Group       string
	Selector    picker.Selector
	Ports       []int  // target ports of the model servers, 1 to 8
	AppProtocol string // "http" or "kubernetes.io/h2c"
	Picker      *PickerRef

	// Targets are document 002's pods, listed in the pool's own status.
	Targets []Target

	// KServe is what only document 003's pool says; nil elsewhere.
	KServe *KServe
}

// PickerRef names the endpoint picker's Service (endpointPickerRef,
// extensionRef).
type PickerRef struct {
	Group, Kind, Name, Namespace string
	Port                         int
	FailOpen                     bool // FailClose otherwise, and by default
}

// Target is one pod of document 002's status.targets.
type Target struct {
	Name        string
	Address     string
	Port        int // 0 is the pool's
	Ready       bool
	Sessions    []string
	QPS, MaxQPS float64
}

// DefaultPort is the port of a pool that names none: documents 002 and 003
// give it in the route, as 8000.
const DefaultPort = 8000

func readPool(v value, body map[string]func(value), meta Meta, group string) Pool {
	p := Pool{Meta: meta, Group: group, AppProtocol: "http"}
	v1 := group == GroupV1
	port := func(v value) {
		if n := v.Int(1, 65535, 0); n > 0 {
			p.Ports = append(p.Ports, int(n))
		}
	}
	spec := map[string]func(value){
		"selector":          func(v value) { p.Selector = readSelector(v, !v1) },
		"targetPortNumber":  port,
		"appProtocol":       func(v value) { p.AppProtocol = v.OneOf("http", "kubernetes.io/h2c") },
		"endpointPickerRef": func(v value) { p.Picker = readPickerRef(v) },
		"extensionRef":      func(v value) { p.Picker = readPickerRef(v) },
		"targetPorts": func(v value) {
			for _, e := range v.List() {
				e.Fields(map[string]func(value){"number": port})
			}
			if n := len(v.List()); n < 1 || n > 8 {
				v.Fail(fmt.Sprintf("found %d target ports", n), "1 to 8", "")
			}
		},
	}
	if group == GroupKServe {
		p.KServe = &KServe{}
		p.KServe.known(spec)
	}
	body["spec"] = func(v value) { v.Fields(spec) }
	body["status"] = func(v value) { p.Targets = readTargets(v.Mapping().Get("targets")) }
	v.Fields(body)
	for i, n := range p.Ports {
		for _, m := range p.Ports[:i] {
			if n == m {
				v.Get("spec").Get("targetPorts").Fail(fmt.Sprintf("port %d is given twice", n), "each port once", "")
			}
		}
	}
	if v1 && len(p.Selector) == 0 {
		v.Get("spec").Get("selector").Fail("there are no matchLabels", "some: they say which pods belong to the pool", "")
	}
	if len(p.Ports) == 0 {
		if ports := v.Get("spec").Get("targetPorts"); v1 && !ports.Given() {
			ports.Fail("missing", "1 to 8 target ports", "")
		}
		p.Ports = []int{DefaultPort}
	}
	return p
}

func readPickerRef(v value) *PickerRef {
	ref := &PickerRef{Kind: "Service", Port: 9002}
	port := func(v value) { ref.Port = int(v.Int(1, 65535, 9002)) }
	v.Fields(map[string]func(value){
		"group":       func(v value) { ref.Group = v.Text() },
		"kind":        func(v value) { ref.Kind = v.Text() },
		"name":        func(v value) { ref.Name = v.Text() },
		"namespace":   func(v value) { ref.Namespace = v.Text() },
		"port":        func(v value) { v.Fields(map[string]func(value){"number": port}) },
		"portNumber":  port,
		"failureMode": func(v value) { ref.FailOpen = v.OneOf("FailClose", "FailOpen") == "FailOpen" },
	})
	if ref.Name == "" {
		v.Get("name").Fail("missing", "the name of the endpoint picker's Service", "")
	}
	return ref
}

func readTargets(v value) (out []Target) {
	for _, e := range v.List() {
		var t Target
		e.Fields(map[string]func(value){
			"name":    func(v value) { t.Name = v.Text() },
			"address": func(v value) { t.Address = v.Text() },
			"port":    func(v value) { t.Port = int(v.Int(1, 65535, 0)) },
			"ready":   func(v value) { t.Ready = v.Bool() },
			"metadata": func(v value) {
				v = v.Mapping()
				t.Sessions = v.Get("sessions").TextList()
				t.QPS, t.MaxQPS = v.Get("qps").Float(), v.Get("maxQps").Float()
			},
		})
		if t.Name == "" || !isAddress(t.Address) {
			e.Fail(fmt.Sprintf("found %q and %q", t.Name, t.Address), "a name and an IP address", "")
		}
		out = append(out, t)
	}
	return out
}

// readSelector reads matchLabels and matchExpressions; flat is the shape of
// v1alpha2, where the selector is the labels themselves.
func readSelector(v value, flat bool) (s picker.Selector) {
	if flat && !v.Get("matchLabels").Given() && !v.Get("matchExpressions").Given() {
		return picker.SelectLabels(v.Texts())
	}
	v.Fields(map[string]func(value){
		"matchLabels": func(v value) { s = append(s, picker.SelectLabels(v.Texts())...) },
		"matchExpressions": func(v value) {
			for _, e := range v.List() {
				var r picker.Requirement
				e.Fields(map[string]func(value){
					"key":      func(v value) { r.Key = v.Text() },
					"operator": func(v value) { r.Operator = v.Text() },
					"values":   func(v value) { r.Values = v.TextList() },
				})
				if err := r.Check(); err != nil {
					e.Fail(err.Error(), "", "")
				}
				s = append(s, r)
			}
		},
	})
	return s
}
