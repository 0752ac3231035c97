package lab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// pod is a pod as kubectl shows it.
type pod struct {
	namespace, name, ip, status string
	labels                      map[string]string
	containers                  []string
	workload                    *gateway.Workload // nil if no manifest describes the pod
	ports                       map[string]string // addresses by their numbers
	metrics                     string            // address of its metrics page, or ""
}

func podsOf(a *up.Addresses, set *gateway.Set) (out []pod) {
	for _, x := range a.Pods {
		p := pod{namespace: x.Namespace, name: x.Name, ip: x.IP, labels: x.Labels, ports: x.Ports, status: "Running",
			metrics:  x.Metrics,
			workload: workload(set, x.Namespace, x.Workload)}
		if x.OOMKilled {
			p.status = "OOMKilled"
		}
		out = append(out, p)
	}
	for _, x := range a.Pickers {
		out = append(out, pod{namespace: x.Namespace, name: x.Name, ip: "127.0.0.1", labels: x.Labels,
			status: "Running", containers: []string{x.Container}, metrics: x.Metrics,
			ports: map[string]string{"9090": x.Metrics, "9002": x.ExtProc, "9003": x.Health}})
	}
	for i, l := range a.Listeners {
		namespace, name, _ := strings.Cut(l.Gateway, "/")
		at := strings.TrimPrefix(strings.TrimPrefix(l.URL, "https://"), "http://")
		ports := map[string]string{"19000": strings.TrimPrefix(a.EnvoyAdmin, "http://"), strconv.Itoa(l.Port): at}
		if i > 0 && a.Listeners[i-1].Gateway == l.Gateway {
			maps.Copy(out[len(out)-1].ports, ports)
			continue
		}
		out = append(out, pod{namespace: namespace, name: "envoy-" + name, ip: "127.0.0.1", status: "Running",
			labels:     map[string]string{"app": "envoy", "gateway.networking.k8s.io/gateway-name": name},
			containers: []string{"envoy"}, ports: ports})
	}
	for i := range out {
		if w := out[i].workload; w != nil {
			for c := range w.Containers {
				out[i].containers = append(out[i].containers, w.Containers[c].Name)
			}
		}
	}
	return out
}

// podsWith returns the pods whose labels match a selector.
func (s *State) podsWith(selector string) ([]pod, error) {
	wanted, err := picker.ParseSelector(selector)
	var out []pod
	for _, p := range podsOf(s.Addresses, nil) {
		if wanted.Matches(p.labels) {
			out = append(out, p)
		}
	}
	return out, err
}

func workload(set *gateway.Set, namespace, name string) *gateway.Workload {
	if set == nil {
		return nil
	}
	i := slices.IndexFunc(set.Workloads,
		func(w gateway.Workload) bool { return w.Namespace == namespace && w.Name == name })
	if i < 0 {
		return nil
	}
	return &set.Workloads[i]
}

// selected returns the pods with the call's labels, namespace and names.
func (k *Kubectl) selected(names ...string) (out []pod, err error) {
	var wanted picker.Selector
	if k.selector != "" {
		if wanted, err = picker.ParseSelector(k.selector); err != nil {
			return nil, fmt.Errorf("-l: %w", err)
		}
	}
	for _, p := range k.pods {
		if (k.namespace == "" || p.namespace == k.namespace) && wanted.Matches(p.labels) &&
			(len(names) == 0 || slices.Contains(names, p.name)) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		switch {
		case len(names) > 0:
			return nil, fmt.Errorf("found no pod %q%s; kubectl get pods prints them all", strings.Join(names, " "),
				in(k.namespace))
		default:
			fmt.Fprintf(k.Err, "No resources found%s.\n", in(k.namespace))
		}
	}
	return out, nil
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// onePod returns the pod that the first argument names.
func (k *Kubectl) onePod() (pod, error) {
	if len(k.args) == 0 {
		return pod{}, fmt.Errorf("expected kubectl %s %s", k.verb, verbs[k.verb])
	}
	kind, name, slash := strings.Cut(k.args[0], "/")
	if !slash {
		name = kind
	} else if kind = kindOf(kind); kind != "pod" {
		i := slices.IndexFunc(k.pods, func(p pod) bool {
			return p.workload != nil && strings.EqualFold(p.workload.Kind, kind) && p.workload.Name == name &&
				(k.namespace == "" || p.namespace == k.namespace)
		})
		if i < 0 {
			return pod{}, fmt.Errorf("found no pod of %s%s; kubectl get pods prints them all", k.args[0],
				in(k.namespace))
		}
		name = k.pods[i].name
	}
	list, err := k.selected(name)
	if err != nil {
		return pod{}, err
	}
	return list[0], nil
}

func (k *Kubectl) table(list []pod) error {
	w := tabwriter.NewWriter(k.Out, 0, 0, 3, ' ', 0)
	heads := []string{"NAMESPACE", "NAME", "READY", "STATUS", "AGE"}
	if k.output == "wide" {
		heads = append(heads, "IP")
	}
	if k.labels {
		heads = append(heads, "LABELS")
	}
	if k.output != "name" && len(list) > 0 {
		fmt.Fprintln(w, strings.Join(heads, "\t"))
	}
	age := time.Since(k.state.Since).Round(time.Second).String()
	for _, p := range list {
		if k.output == "name" {
			fmt.Fprintln(w, "pod/"+p.name)
			continue
		}
		n := max(1, len(p.containers))
		ready := n
		if p.status != "Running" {
			ready--
		}
		row := []string{p.namespace, p.name, fmt.Sprintf("%d/%d", ready, n), p.status, age}
		if k.output == "wide" {
			row = append(row, p.ip)
		}
		if k.labels {
			row = append(row, labelled(p.labels))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func labelled(labels map[string]string) string {
	keys := slices.Sorted(maps.Keys(labels))
	texts := terminal.Texts(len(keys), func(i int) string { return keys[i] + "=" + labels[keys[i]] })
	return cmp.Or(strings.Join(texts, ","), "<none>")
}

func (k *Kubectl) describePods(list []pod) error {
	for _, p := range list {
		for _, row := range [][2]string{{"Name", p.name}, {"Namespace", p.namespace}, {"Labels", labelled(p.labels)},
			{"Status", p.status}, {"IP", p.ip}, {"Containers", strings.Join(p.containers, ", ")},
			{"Ports", strings.Join(slices.Sorted(maps.Keys(p.ports)), ", ")}} {
			fmt.Fprintf(k.Out, "%-12s %s\n", row[0]+":", row[1])
		}
		for _, e := range k.Dir.events() {
			if p.workload != nil && strings.Contains(e.Message, p.workload.Name) {
				fmt.Fprintf(k.Out, "Event        %s  %s  %s\n", e.Type, e.Reason, e.Message)
			}
		}
	}
	return nil
}
