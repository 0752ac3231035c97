package objects

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Pool is an InferencePool of any group.
type Pool struct {
	Meta
	Group       string
	Selector    picker.Selector
	Ports       []int  // target ports of the model servers, 1 to 8
	AppProtocol string // "http" or "kubernetes.io/h2c"
	Picker      *PickerRef

	// Targets are document 002's pods, from the pool's own status.
	Targets []Target

	// KServe has document 003's fields; nil for other groups.
	KServe *KServe
}

// PickerRef names the endpoint picker's Service (endpointPickerRef,
// extensionRef).
type PickerRef struct {
	Group, Kind, Name string
	Port              int
	FailOpen          bool // else FailClose, the default
}

// Target is one pod of document 002's status.targets.
type Target struct {
	Name    string
	Address string
	Port    int // 0 is the pool's
	picker.Announced
}

// DefaultPort is the port of a pool that names none. Documents 002 and 003 have 8000 in the route.
const DefaultPort = 8000

// readPool reads a pool of any group by its group's schema. Other groups' fields are unknown in it: like the API
// server, readPool ignores them with a warning.
func readPool(v value, body map[string]func(value), meta Meta, group string) Pool {
	p := Pool{Meta: meta, Group: group, AppProtocol: "http"}
	v1, x := group == GroupV1, group == GroupX
	port := func(v value) {
		if n := v.Int(1, 65535, 0); n > 0 {
			p.Ports = append(p.Ports, int(n))
		}
	}
	spec := map[string]func(value){}
	if !x {
		spec["selector"] = func(v value) { p.Selector = readSelector(v, !v1) }
		spec["appProtocol"] = func(v value) { p.AppProtocol = v.OneOf("http", "kubernetes.io/h2c") }
		spec["endpointPickerRef"] = func(v value) { p.Picker = readPickerRef(v, "port") }
		spec["targetPorts"] = func(v value) {
			for _, e := range v.List() {
				e.Fields(map[string]func(value){"number": port})
				demand(e.Get("number"), "a target port's number")
			}
			if n := len(v.List()); n < 1 || n > 8 {
				v.Fail(fmt.Sprintf("found %d target ports", n), "1 to 8", "")
			}
		}
	}
	if !v1 {
		spec["targetPortNumber"] = port
		spec["extensionRef"] = func(v value) { p.Picker = readPickerRef(v, "portNumber") }
	}
	switch group {
	case GroupX:
		spec["selector"] = func(v value) { p.Selector = picker.SelectLabels(labelValues(v)) }
	case GroupKServe:
		p.KServe = &KServe{}
		p.KServe.known(spec)
	}
	body["status"] = func(v value) { p.Targets = readTargets(v.Mapping().Get("targets")) }
	readSpec(v, body, spec)
	for i, n := range p.Ports {
		if slices.Contains(p.Ports[:i], n) {
			v.Get("spec").Get("targetPorts").Fail(fmt.Sprintf("port %d is given twice", n), "each port once", "")
		}
	}
	s := v.Get("spec")
	switch {
	case v1:
		if labels := s.Get("selector").Get("matchLabels"); len(labels.Pairs()) == 0 {
			s.Get("selector").Fail("there are no matchLabels", "some: they say which pods belong to the pool", "")
		}
		demand(s.Get("targetPorts"), "1 to 8 target ports")
	case x && s.Given():
		demand(s.Get("selector"), "the labels of the pool's pods")
		demand(s.Get("targetPortNumber"), "the port of the model servers")
		demand(s.Get("extensionRef"), "the endpoint picker's Service")
	}
	if len(p.Ports) == 0 {
		p.Ports = []int{DefaultPort}
	}
	return p
}

// readPickerRef reads the reference to the endpoint picker. portField names the field of the port, which is a mapping
// in v1.
func readPickerRef(v value, portField string) *PickerRef {
	ref := &PickerRef{Kind: "Service", Port: 9002}
	port := func(v value) { ref.Port = int(v.Int(1, 65535, 9002)) }
	known := map[string]func(value){
		"group": func(v value) { ref.Group = schemaText(v, groupForm, 253, "a group; the core one is \"\"") },
		"kind": func(v value) {
			if v.Given() {
				ref.Kind = schemaText(v, kindForm, 63, "a kind, such as Service")
			}
		},
		"name": func(v value) {
			ref.Name = schemaText(v, nil, 253, "the name of the endpoint picker's Service")
		},
		"failureMode": func(v value) { ref.FailOpen = v.OneOf("FailClose", "FailOpen") == "FailOpen" },
		portField:     port,
	}
	if portField == "port" {
		known[portField] = func(v value) {
			v.Fields(map[string]func(value){"number": port})
			if v.IsMapping() {
				demand(v.Get("number"), "the port of the endpoint picker's Service")
			}
		}
	}
	v.Fields(known)
	if v.IsMapping() {
		demand(v.Get("name"), "the name of the endpoint picker's Service")
		if portField == "port" && ref.Kind == "Service" {
			demand(v.Get(portField), "the port, which a Service needs, such as {number: 9002}")
		}
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

// ReadSelector reads a label selector: matchLabels and matchExpressions.
func ReadSelector(v strictyaml.Value) picker.Selector { return readSelector(v, true) }

// readSelector reads matchLabels and, if the schema has them, matchExpressions.
func readSelector(v value, expressions bool) (s picker.Selector) {
	known := map[string]func(value){
		"matchLabels": func(v value) { s = append(s, picker.SelectLabels(labelValues(v))...) },
	}
	if expressions {
		known["matchExpressions"] = func(v value) {
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
		}
	}
	v.Fields(known)
	return s
}

// labelValues reads up to 64 labels to match. No schema limits the form of their keys.
func labelValues(v value) map[string]string {
	labels := map[string]string{}
	for _, p := range v.Pairs() {
		if !p.Given() {
			continue
		}
		labels[p.Name] = schemaText(p.Value, labelForm, 63, aLabel)
	}
	if len(labels) > 64 {
		v.Fail(fmt.Sprintf("found %d labels", len(labels)), "at most 64", "")
	}
	return labels
}
