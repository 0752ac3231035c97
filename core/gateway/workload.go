package gateway

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway/shell"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Workload is a Deployment, ReplicaSet or StatefulSet, whose pods are all alike, or a Pod without such an owner.
type Workload struct {
	objects.Meta
	Kind     string
	Replicas int
	// Selector is the workload's own. Pods are the labels of its pods, and PodAnnotations their annotations.
	Selector       picker.Selector
	Pods           map[string]string
	PodAnnotations map[string]string
	Containers     []Container
	Volumes        map[string]Volume

	At strictyaml.Value

	proxied bool // its proxy's configuration is a Gateway
}

// Container is a container of a pod, or an init container that keeps running (a sidecar).
type Container struct {
	Name, Image   string
	Init          bool
	Command, Args []string
	Env           []EnvVar
	Ports         []ContainerPort
	// Mounts maps paths to volumes.
	Mounts map[string]string

	At strictyaml.Value

	script shell.Command // the program that its script runs, if it has one
	added  []string      // arguments besides its own
}

// EnvVar is an environment variable. From is the pod's field with its value, such as status.podIP.
type EnvVar struct {
	Name, Value, From string
	// Map is the ConfigMap with the value under Key. Without a Key, all its entries are variables, and Name is the
	// prefix of their names.
	Map, Key string
}

// ContainerPort is a port on which a container listens.
type ContainerPort struct {
	Name   string
	Number int
}

// Volume names the source of a volume's files.
type Volume struct{ ConfigMap, Secret string }

// Service holds the fields of a Service that route requests.
type Service struct {
	objects.Meta
	Selector picker.Selector
	Headless bool
	Ports    []ServicePort

	At strictyaml.Value
}

// ServicePort is a port of a Service, with the port where its pods listen: a number, or the name of a container's port.
type ServicePort struct {
	Name, AppProtocol string
	Number            int
	TargetNumber      int
	TargetName        string
}

// EndpointSlice holds the endpoints of a Service without a selector.
type EndpointSlice struct {
	objects.Meta
	// Ports maps the Service's port names to the slice's ports.
	Ports     map[string]int
	Addresses []netip.Addr // of ready endpoints
}

// ConfigMap holds the data of a ConfigMap, with positions.
type ConfigMap struct {
	objects.Meta
	Data map[string]string
	// Values holds the same data with positions, for messages.
	Values map[string]strictyaml.Value
}

// Secret is a Secret. No error, log or page shows its data.
type Secret struct {
	objects.Meta
	Type string
	data map[string][]byte

	At strictyaml.Value
}

// Get returns one of a Secret's values.
func (s *Secret) Get(key string) ([]byte, bool) {
	v, ok := s.data[key]
	return v, ok
}

// Namespace is a Namespace, with labels that a listener may select.
type Namespace struct{ objects.Meta }

// maxReplicas limits the replicas of one workload.
const maxReplicas = 10_000

func readWorkload(v strictyaml.Value, m objects.Meta) (w Workload) {
	w = Workload{Meta: m, Kind: v.Get("kind").Text(), At: v, Volumes: map[string]Volume{}}
	spec := v.Get("spec").Mapping()
	w.Replicas = int(spec.Get("replicas").Int(0, maxReplicas, 1))
	w.Selector = picker.SelectLabels(spec.Get("selector").Mapping().Get("matchLabels").Texts())
	if !spec.Get("selector").Given() {
		spec.Get("selector").Fail(spec.Get("selector").Found(),
			"the labels of the pods: matchLabels, as in the template", "")
	}
	pod := spec.Get("template").Mapping()
	w.Pods = pod.Get("metadata").Mapping().Get("labels").Texts()
	w.PodAnnotations = pod.Get("metadata").Get("annotations").Texts()
	if len(w.Selector) > 0 && !w.Selector.Matches(w.Pods) {
		spec.Get("selector").Fail("the selector does not select the pods of the template",
			"its labels among the template's", "")
	}
	w.run(pod.Get("spec").Mapping())
	return w
}

// readPod reads a Pod without an owner.
func readPod(v strictyaml.Value, m objects.Meta) Workload {
	w := Workload{Meta: m, Kind: "Pod", Replicas: 1, At: v, Volumes: map[string]Volume{}, Pods: m.Labels,
		Selector: picker.SelectLabels(m.Labels), PodAnnotations: m.Annotations}
	w.run(v.Get("spec").Mapping())
	return w
}

// Key is kind/namespace/name.
func (w *Workload) Key() string { return w.Kind + "/" + w.Namespace + "/" + w.Name }

// PodName returns the name of a replica.
func (w *Workload) PodName(i int) string {
	if w.Kind == "Pod" {
		return w.Name
	}
	return fmt.Sprintf("%s-%d", w.Name, i)
}

// run reads a pod's spec.
func (w *Workload) run(inside strictyaml.Value) {
	if role, given := w.Pods[picker.LabelRole]; given && role == "" {
		inside.Warn("the pods' label "+picker.LabelRole+" is empty", "a role such as decode, or no such label",
			"decode-filter, prefill-filter and encode-filter keep no endpoint with an empty role")
	}
	for _, c := range inside.Get("initContainers").List() {
		if c.Mapping().Get("restartPolicy").Text() == "Always" { // other init containers end before the pod serves
			w.Containers = append(w.Containers, readContainer(c, true))
		}
	}
	for _, c := range inside.Get("containers").List() {
		w.Containers = append(w.Containers, readContainer(c, false))
	}
	if len(inside.Get("containers").List()) == 0 {
		inside.Get("containers").Fail("there are none", "at least one container", "")
	}
	for _, x := range inside.Get("volumes").List() {
		w.Volumes[x.Mapping().Get("name").Text()] = Volume{ConfigMap: x.Get("configMap").Mapping().Get("name").Text(),
			Secret: x.Get("secret").Mapping().Get("secretName").Text()}
	}
}

func readContainer(v strictyaml.Value, init bool) Container {
	c := Container{Name: v.Get("name").Text(), Image: v.Get("image").Text(), Init: init,
		Command: v.Get("command").TextList(), Args: v.Get("args").TextList(), Mounts: map[string]string{}, At: v}
	for _, e := range v.Get("envFrom").List() {
		if m := e.Mapping().Get("configMapRef").Mapping().Get("name").Text(); m != "" {
			c.Env = append(c.Env, EnvVar{Name: e.Get("prefix").Text(), Map: m})
		}
	}
	for _, e := range v.Get("env").List() {
		from := e.Mapping().Get("valueFrom").Mapping()
		key := from.Get("configMapKeyRef").Mapping()
		c.Env = append(c.Env, EnvVar{Name: e.Get("name").Text(), Value: e.Get("value").Text(),
			From: from.Get("fieldRef").Mapping().Get("fieldPath").Text(), Map: key.Get("name").Text(),
			Key: key.Get("key").Text()})
	}
	for _, p := range v.Get("ports").List() {
		c.Ports = append(c.Ports,
			ContainerPort{Name: p.Mapping().Get("name").Text(), Number: int(p.Get("containerPort").Int(1, 65535, 0))})
	}
	for _, m := range v.Get("volumeMounts").List() {
		c.Mounts[m.Mapping().Get("mountPath").Text()] = m.Get("name").Text()
	}
	c.readScript()
	return c
}

// Port returns the number of the container's port with this name.
func (w *Workload) Port(name string) (int, bool) {
	for _, c := range w.Containers {
		for _, p := range c.Ports {
			if p.Name == name {
				return p.Number, true
			}
		}
	}
	return 0, false
}

func readService(v strictyaml.Value, m objects.Meta) Service {
	s := Service{Meta: m, At: v}
	spec := v.Get("spec").Mapping()
	s.Selector = picker.SelectLabels(spec.Get("selector").Texts())
	s.Headless = spec.Get("clusterIP").Text() == "None"
	for _, p := range spec.Get("ports").List() {
		port := ServicePort{Name: p.Mapping().Get("name").Text(), AppProtocol: p.Get("appProtocol").Text(),
			Number: int(p.Get("port").Int(1, 65535, 0))}
		if !p.Get("port").Given() {
			p.Get("port").Fail(p.Get("port").Found(), "the Service's port", "")
		}
		switch t := p.Get("targetPort"); {
		case !t.Given():
			port.TargetNumber = port.Number
		case t.IsText():
			port.TargetName = t.Text()
		default:
			port.TargetNumber = int(t.Int(1, 65535, 0))
		}
		s.Ports = append(s.Ports, port)
	}
	return s
}

func readSlice(v strictyaml.Value, m objects.Meta) EndpointSlice {
	e := EndpointSlice{Meta: m, Ports: map[string]int{}}
	for _, p := range v.Get("ports").List() {
		e.Ports[p.Mapping().Get("name").Text()] = int(p.Get("port").Int(1, 65535, 0))
	}
	for _, x := range v.Get("endpoints").List() {
		if ready := x.Mapping().Get("conditions").Mapping().Get("ready"); ready.Given() && !ready.Bool() {
			continue
		}
		for _, a := range x.Get("addresses").List() {
			ip, err := netip.ParseAddr(a.Text())
			if err != nil {
				a.Fail(a.Found(), "an IP address", "")
				continue
			}
			e.Addresses = append(e.Addresses, ip)
		}
	}
	return e
}

// Sliced returns the endpoints in the EndpointSlices of a Service's port, as host:port.
func (s *Set) Sliced(v *Service, p ServicePort) (out []string) {
	for i := range s.Slices {
		e := &s.Slices[i]
		number, ok := e.Ports[p.Name]
		if !ok || e.Namespace != v.Namespace || e.Labels["kubernetes.io/service-name"] != v.Name {
			continue
		}
		for _, a := range e.Addresses {
			out = append(out, netip.AddrPortFrom(a, uint16(number)).String())
		}
	}
	return out
}

// Port returns the Service's port with this number.
func (s *Service) Port(number int) (ServicePort, bool) {
	i := slices.IndexFunc(s.Ports, func(p ServicePort) bool { return p.Number == number })
	if i < 0 {
		return ServicePort{}, false
	}
	return s.Ports[i], true
}

func readConfigMap(v strictyaml.Value, m objects.Meta) ConfigMap {
	c := ConfigMap{Meta: m, Data: v.Get("data").Texts(), Values: map[string]strictyaml.Value{}}
	for name := range c.Data {
		c.Values[name] = v.Get("data").Get(name)
	}
	return c
}

func readSecret(v strictyaml.Value, m objects.Meta) Secret {
	s := Secret{Meta: m, Type: v.Get("type").Text(), data: map[string][]byte{}, At: v}
	for _, p := range v.Get("data").Mapping().Pairs() {
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(p.Text()), ""))
		if err != nil {
			p.Fail("what stands here is not base64", "data in base64; stringData takes text as it is", "")
		}
		s.data[p.Name] = raw
	}
	for _, p := range v.Get("stringData").Mapping().Pairs() {
		s.data[p.Name] = []byte(p.Text())
	}
	return s
}

// environments adds the values of ConfigMaps to the containers' environments.
func (b *builder) environments() {
	for i := range b.Workloads {
		w := &b.Workloads[i]
		for k := range w.Containers {
			c := &w.Containers[k]
			if !slices.ContainsFunc(c.Env, func(e EnvVar) bool { return e.Map != "" }) {
				continue
			}
			var env []EnvVar
			for _, e := range c.Env {
				m := b.ConfigMap(w.Namespace, e.Map)
				switch {
				case e.Map == "":
					env = append(env, e)
				case m == nil:
					b.note(c.At.Problem(fmt.Sprintf("container %s: its environment is of ConfigMap %s, which is not "+
						"among the objects", c.Name, e.Map), "", "its variables are not set").Error())
				case e.Key == "":
					for _, key := range slices.Sorted(maps.Keys(m.Data)) {
						env = append(env, EnvVar{Name: e.Name + key, Value: m.Data[key], From: fromMap})
					}
				default:
					env = append(env, EnvVar{Name: e.Name, Value: m.Data[e.Key], From: fromMap})
				}
			}
			c.Env = env
			c.readScript()
		}
	}
}

// fromMap is the From of a variable with a value from a ConfigMap.
const fromMap = "configMap"

// Selected returns the workloads of a namespace whose pods a selector selects, sorted by name.
func (s *Set) Selected(namespace string, selector picker.Selector) (out []*Workload) {
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Namespace == namespace && len(selector) > 0 && selector.Matches(w.Pods) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *Workload) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Mounted returns the text of a file in a container that is mounted from a ConfigMap.
func (s *Set) Mounted(w *Workload, c *Container, path string) (text, from string, found bool) {
	for _, at := range slices.Sorted(maps.Keys(c.Mounts)) {
		name, below := strings.CutPrefix(path, strings.TrimSuffix(at, "/")+"/")
		if !below {
			continue
		}
		if m := s.ConfigMap(w.Namespace, w.Volumes[c.Mounts[at]].ConfigMap); m != nil {
			text, found = m.Data[name]
			if !found {
				return "", "", false
			}
			return text, fmt.Sprintf("%s:%d: ConfigMap %s/%s: %s", m.File, m.Values[name].Line(), m.Namespace, m.Name,
				name), true
		}
	}
	return "", "", false
}
