package objects

import "github.com/windtunnel/windtunnel/core/picker"

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
		if n := v.number(1, 65535, 0); n > 0 {
			p.Ports = append(p.Ports, int(n))
		}
	}
	spec := map[string]func(value){
		"selector":          func(v value) { p.Selector = readSelector(v, !v1) },
		"targetPortNumber":  port,
		"appProtocol":       func(v value) { p.AppProtocol = v.oneOf("http", "kubernetes.io/h2c") },
		"endpointPickerRef": func(v value) { p.Picker = readPickerRef(v) },
		"extensionRef":      func(v value) { p.Picker = readPickerRef(v) },
		"targetPorts": func(v value) {
			for _, e := range v.list() {
				e.fields(map[string]func(value){"number": port})
			}
			if n := len(v.list()); n < 1 || n > 8 {
				v.fail("a pool has 1 to 8 target ports, not %d", n)
			}
		},
	}
	if group == GroupKServe {
		p.KServe = &KServe{}
		p.KServe.known(spec)
	}
	body["spec"] = func(v value) { v.fields(spec) }
	body["status"] = func(v value) { p.Targets = readTargets(v.get("targets")) }
	v.fields(body)
	for i, n := range p.Ports {
		for _, m := range p.Ports[:i] {
			if n == m {
				v.get("spec").get("targetPorts").fail("port %d is given twice", n)
			}
		}
	}
	if v1 && len(p.Selector) == 0 {
		v.get("spec").get("selector").fail("matchLabels is needed: it says which pods belong to the pool")
	}
	if len(p.Ports) == 0 {
		if ports := v.get("spec").get("targetPorts"); v1 && !ports.given() {
			ports.fail("a pool has 1 to 8 target ports, not 0")
		}
		p.Ports = []int{DefaultPort}
	}
	return p
}

func readPickerRef(v value) *PickerRef {
	ref := &PickerRef{Kind: "Service", Port: 9002}
	port := func(v value) { ref.Port = int(v.number(1, 65535, 9002)) }
	v.fields(map[string]func(value){
		"group":       func(v value) { ref.Group = v.text() },
		"kind":        func(v value) { ref.Kind = v.text() },
		"name":        func(v value) { ref.Name = v.text() },
		"namespace":   func(v value) { ref.Namespace = v.text() },
		"port":        func(v value) { v.fields(map[string]func(value){"number": port}) },
		"portNumber":  port,
		"failureMode": func(v value) { ref.FailOpen = v.oneOf("FailClose", "FailOpen") == "FailOpen" },
	})
	if ref.Name == "" {
		v.get("name").fail("the name of the endpoint picker's Service is needed")
	}
	return ref
}

func readTargets(v value) (out []Target) {
	for _, e := range v.list() {
		var t Target
		e.fields(map[string]func(value){
			"name":    func(v value) { t.Name = v.text() },
			"address": func(v value) { t.Address = v.text() },
			"port":    func(v value) { t.Port = int(v.number(1, 65535, 0)) },
			"ready":   func(v value) { t.Ready = v.flag() },
			"metadata": func(v value) {
				t.Sessions = v.get("sessions").textList()
				t.QPS, t.MaxQPS = v.get("qps").float(), v.get("maxQps").float()
			},
		})
		if t.Name == "" || !isAddress(t.Address) {
			e.fail("a target needs a name and an IP address, got %q and %q", t.Name, t.Address)
		}
		out = append(out, t)
	}
	return out
}

// readSelector reads matchLabels and matchExpressions; flat is the shape of
// v1alpha2, where the selector is the labels themselves.
func readSelector(v value, flat bool) (s picker.Selector) {
	if flat && !v.get("matchLabels").given() && !v.get("matchExpressions").given() {
		return picker.SelectLabels(v.texts())
	}
	v.fields(map[string]func(value){
		"matchLabels": func(v value) { s = append(s, picker.SelectLabels(v.texts())...) },
		"matchExpressions": func(v value) {
			for _, e := range v.list() {
				var r picker.Requirement
				e.fields(map[string]func(value){
					"key":      func(v value) { r.Key = v.text() },
					"operator": func(v value) { r.Operator = v.text() },
					"values":   func(v value) { r.Values = v.textList() },
				})
				if err := r.Check(); err != nil {
					e.fail("%v", err)
				}
				s = append(s, r)
			}
		},
	})
	return s
}
