package lab

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/live/up"
)

// Kubectl answers the commands of kubectl that document 003 uses, from a running lab. Without -n, it looks in all
// namespaces.
type Kubectl struct {
	Dir      Dir
	In       io.Reader
	Out, Err io.Writer
	// Edit opens an editor for a file and returns once the user has closed it.
	Edit func(ctx context.Context, path string) error

	call
	state State
	set   *gateway.Set // nil if the manifests have mistakes
	pods  []pod
	docs  []document
}

// call is a command line of kubectl.
type call struct {
	verb                                         string
	args, command                                []string
	namespace, selector, output, container, file string
	tail                                         int
	all, labels, interactive, tty, previous      bool
	sortBy                                       string
}

// ExitError is the exit code of a program that Kubectl has run in a pod. The program has printed the reason.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("command terminated with exit code %d", int(e)) }

// verbs are the commands, with their forms.
var verbs = map[string]string{
	"get":          "KIND [NAME] [-l SELECTOR] [-o wide|yaml|json|name] [--show-labels]",
	"describe":     "KIND NAME",
	"logs":         "POD | -l SELECTOR [-c CONTAINER] [--tail N]",
	"exec":         "POD [-c CONTAINER] -- PROGRAM ARGUMENTS",
	"top":          "pods",
	"apply":        "-f FILE",
	"edit":         "KIND NAME",
	"port-forward": "POD LOCAL:REMOTE",
}

// ParseKubectl reads a command line of kubectl.
func ParseKubectl(args []string) (c call, err error) {
	c.tail = -1
	value := map[string]*string{"n": &c.namespace, "namespace": &c.namespace, "l": &c.selector, "selector": &c.selector,
		"o": &c.output, "output": &c.output, "c": &c.container, "container": &c.container, "f": &c.file,
		"filename": &c.file, "sort-by": &c.sortBy, "tail": new(string)}
	yes := map[string]*bool{"A": &c.all, "all-namespaces": &c.all, "show-labels": &c.labels, "i": &c.interactive,
		"stdin": &c.interactive, "t": &c.tty, "tty": &c.tty, "p": &c.previous, "previous": &c.previous}
	for i := 0; i < len(args); i++ {
		name, given, assigned := strings.Cut(args[i], "=")
		word := strings.TrimLeft(name, "-")
		switch {
		case args[i] == "--":
			c.command, i = args[i+1:], len(args)
		case !strings.HasPrefix(name, "-") || name == "-":
			c.args = append(c.args, args[i])
		case yes[word] != nil:
			*yes[word] = given != "false"
		case word == "it" || word == "ti":
			c.interactive, c.tty = true, true
		case value[word] == nil:
			return c, fmt.Errorf("flag %s: expected a flag that document 003 uses: %s", name, forms())
		case assigned:
			*value[word] = given
		case i+1 == len(args):
			return c, fmt.Errorf("flag %s: expected a value after it", name)
		default:
			i++
			*value[word] = args[i]
		}
	}
	if n := *value["tail"]; n != "" {
		if c.tail, err = strconv.Atoi(n); err != nil {
			return c, fmt.Errorf("--tail: found %q, expected a number of lines, -1 for all", n)
		}
	}
	if len(c.args) == 0 || verbs[c.args[0]] == "" {
		return c, fmt.Errorf("found %q, expected a command that document 003 uses: %s", strings.Join(args, " "),
			forms())
	}
	c.verb, c.args = c.args[0], c.args[1:]
	if c.verb == "exec" && len(c.command) == 0 && len(c.args) > 1 { // kubectl's old form
		c.args, c.command = c.args[:1], c.args[1:]
	}
	return c, nil
}

func forms() string {
	var out []string
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		out = append(out, "kubectl "+verb+" "+verbs[verb])
	}
	return strings.Join(out, "; ")
}

// Run runs a command line of kubectl.
func (k *Kubectl) Run(ctx context.Context, args []string) (err error) {
	if k.call, err = ParseKubectl(args); err != nil {
		return err
	}
	if k.state, err = k.Dir.State(); err != nil {
		return err
	}
	if k.docs, err = k.Dir.documents(); err != nil {
		return err
	}
	k.set, _ = up.Load([]string{k.Dir.Manifests()}, nil) // with mistakes, pods are still there
	k.pods = podsOf(k.state.Addresses, k.set)
	switch k.verb {
	case "get", "describe":
		return k.get()
	case "logs":
		return k.logs()
	case "exec":
		p, err := k.onePod()
		if err != nil {
			return err
		}
		return k.exec(ctx, p)
	case "top":
		return k.top(ctx)
	case "apply":
		return k.apply()
	case "edit":
		return k.edit(ctx)
	}
	return k.forward(ctx)
}

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
	list, err := k.selected(strings.TrimPrefix(strings.TrimPrefix(k.args[0], "pods/"), "pod/"))
	if err != nil {
		return pod{}, err
	}
	return list[0], nil
}

func (k *Kubectl) logs() error {
	var list []pod
	if k.selector != "" {
		var err error
		if list, err = k.selected(); err != nil {
			return err
		}
	} else {
		p, err := k.onePod()
		if err != nil {
			return err
		}
		list = []pod{p}
	}
	for _, p := range list {
		c := cmp.Or(k.container, append(p.containers, "")[0])
		if !slices.Contains(p.containers, c) {
			return fmt.Errorf("-c: found %q, expected a container of pod %s: %s", c, p.name,
				strings.Join(p.containers, ", "))
		}
		path := k.Dir.log(logName(p.namespace, p.name, c))
		if c == "envoy" {
			path = k.Dir.file(filepath.Join("run", "envoy", "envoy.log"))
		}
		text, err := files.Read(path, 64<<20)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // otherwise it has not logged anything
			return err
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		if k.tail >= 0 && k.tail < len(lines) {
			lines = lines[len(lines)-k.tail:]
		}
		if _, err := k.Out.Write(bytes.Join(lines, nil)); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kubectl) get() error {
	if len(k.args) == 0 {
		return fmt.Errorf("expected kubectl %s %s", k.verb, verbs[k.verb])
	}
	first, name, slash := strings.Cut(k.args[0], "/")
	kind, names := kindOf(first), k.args[1:]
	if slash {
		names = append([]string{name}, names...)
	}
	if kind == "event" {
		return k.events()
	}
	if kind == "pod" && (k.output == "" || k.output == "wide" || k.output == "name") {
		list, err := k.selected(names...)
		if err != nil {
			return err
		}
		if k.verb == "describe" {
			return k.describePods(list)
		}
		return k.table(list)
	}
	var found []document
	for _, d := range k.docs {
		if kindOf(d.Kind) == kind && (k.namespace == "" || d.namespace() == k.namespace) &&
			(len(names) == 0 || slices.Contains(names, d.Metadata.Name)) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("found no %s%s among the manifests, expected one of: %s",
			strings.Join(append([]string{first}, names...), " "), in(k.namespace), kinds(k.docs))
	}
	if k.output == "" && k.verb == "get" {
		w := tabwriter.NewWriter(k.Out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "NAMESPACE\tNAME\tFILE")
		for _, d := range found {
			fmt.Fprintf(w, "%s\t%s\t%s\n", d.namespace(), d.Metadata.Name, filepath.Base(d.file))
		}
		return w.Flush()
	}
	return k.whole(found)
}

// whole prints objects with their status.
func (k *Kubectl) whole(list []document) error {
	status, _ := documentsIn(k.Dir.Status()) // there is none before the first second is over
	for i, d := range list {
		text := d.text
		for _, s := range status {
			if s.Kind == d.Kind && s.Metadata == d.Metadata {
				if at := strings.Index(s.text, "\nstatus:"); at >= 0 && !strings.Contains(text, "\nstatus:") {
					text = strings.TrimRight(text, "\n") + s.text[at:]
				}
			}
		}
		switch k.output {
		case "json":
			out, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				return err
			}
			text = string(out)
		case "", "yaml":
			if i > 0 {
				fmt.Fprintln(k.Out, "---")
			}
		default:
			return fmt.Errorf("-o: found %q, expected yaml or json for %s", k.output, d.Kind)
		}
		if _, err := fmt.Fprintln(k.Out, strings.Trim(text, "\n")); err != nil {
			return err
		}
		for _, e := range k.Dir.events() {
			if k.verb == "describe" && strings.Contains(e.Message, d.Metadata.Name) {
				fmt.Fprintf(k.Out, "Event  %s  %s  %s\n", e.Type, e.Reason, e.Message)
			}
		}
	}
	return nil
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
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return cmp.Or(strings.Join(out, ","), "<none>")
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

func (k *Kubectl) events() error {
	w := tabwriter.NewWriter(k.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "LAST SEEN\tTYPE\tREASON\tMESSAGE")
	for _, e := range k.Dir.events() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", time.Since(e.Time).Round(time.Second), e.Type, e.Reason,
			strings.ReplaceAll(e.Message, "\n", " "))
	}
	return w.Flush()
}

// top prints what a simulated pod has instead of CPU time: its accelerator.
func (k *Kubectl) top(ctx context.Context) error {
	list, err := k.selected(k.args[min(1, len(k.args)):]...)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(k.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tGPU\tGPU MEMORY")
	for _, p := range list {
		g, err := readGPU(ctx, p)
		use, memory := "-", "-"
		if err == nil {
			use, memory = fmt.Sprintf("%.0f%%", g.percent), fmt.Sprintf("%.0fMi", g.used)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.namespace, p.name, use, memory)
	}
	return w.Flush()
}

// apply puts the objects of a file among the manifests.
func (k *Kubectl) apply() error {
	if k.file == "" {
		return fmt.Errorf("expected kubectl apply %s", verbs["apply"])
	}
	var text []byte
	var err error
	if k.file == "-" {
		text, err = files.ReadFrom("standard input", k.In, maxState)
	} else {
		text, err = files.Read(k.file, maxState)
	}
	if err != nil {
		return err
	}
	list, err := split(k.file, string(text))
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := k.put(d); err != nil {
			return err
		}
	}
	return nil
}

// put replaces an object in its manifest, or adds a manifest with it.
func (k *Kubectl) put(d document) error {
	for _, was := range k.docs {
		if was.Kind == d.Kind && was.Metadata.Name == d.Metadata.Name && was.namespace() == d.namespace() {
			text, err := files.Read(was.file, maxState)
			if err != nil {
				return err
			}
			fmt.Fprintf(k.Out, "%s/%s configured\n", strings.ToLower(d.Kind), d.Metadata.Name)
			return files.Replace(was.file, []byte(strings.Replace(string(text), was.text, d.text, 1)))
		}
	}
	fmt.Fprintf(k.Out, "%s/%s created\n", strings.ToLower(d.Kind), d.Metadata.Name)
	name := strings.ToLower(d.Kind + "-" + d.namespace() + "-" + d.Metadata.Name)
	return files.Replace(filepath.Join(k.Dir.Manifests(), filepath.Base(name)+".yaml"), []byte(d.text))
}

func (k *Kubectl) edit(ctx context.Context) error {
	kind, name, slash := strings.Cut(strings.Join(k.args, "/"), "/")
	i := slices.IndexFunc(k.docs, func(d document) bool {
		return kindOf(d.Kind) == kindOf(kind) && d.Metadata.Name == name &&
			(k.namespace == "" || d.namespace() == k.namespace)
	})
	if !slash || i < 0 {
		return fmt.Errorf("found %q, expected kubectl edit KIND NAME, of: %s", strings.Join(k.args, " "), kinds(k.docs))
	}
	path := k.Dir.file("edit.yaml")
	if err := os.WriteFile(path, []byte(k.docs[i].text), 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	if err := k.Edit(ctx, path); err != nil {
		return err
	}
	k.call.file = path
	return k.apply()
}

// forward copies connections from a local port to a port of a pod until ctx ends.
func (k *Kubectl) forward(ctx context.Context) error {
	if len(k.args) != 2 {
		return fmt.Errorf("expected kubectl port-forward %s", verbs["port-forward"])
	}
	p, err := k.onePod()
	if err != nil {
		return err
	}
	local, remote, both := strings.Cut(k.args[1], ":")
	if !both {
		remote = local
	}
	to := p.ports[remote]
	if to == "" {
		return fmt.Errorf("port %q: expected a port on which pod %s listens: %s", remote, p.name,
			strings.Join(slices.Sorted(maps.Keys(p.ports)), ", "))
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", local))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(k.Out, "Forwarding from %s -> %s\n", l.Addr(), remote)
	for {
		from, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go relay(ctx, from, to)
	}
}

func relay(ctx context.Context, from net.Conn, to string) {
	defer from.Close()
	at, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return // the client sees that the connection ends
	}
	defer at.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); at.Close() })()
	go func() {
		_, _ = io.Copy(at, from) // the other direction ends the connection
	}()
	_, _ = io.Copy(from, at) // as above
}

// document is an object of a manifest, as text.
type document struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	file, text string
}

func (d *document) namespace() string { return cmp.Or(d.Metadata.Namespace, "default") }

func (d Dir) documents() (out []document, err error) {
	err = files.Manifests("manifests", d.Manifests(), maxState, func(path string, text []byte) error {
		list, err := split(path, string(text))
		out = append(out, list...)
		return err
	})
	return out, err
}

func documentsIn(path string) ([]document, error) {
	text, err := files.Read(path, maxState)
	if err != nil {
		return nil, err
	}
	return split(path, string(text))
}

// split returns the objects of a file.
func split(path, text string) (out []document, err error) {
	var one strings.Builder
	lines := bufio.NewScanner(strings.NewReader(text + "\n---\n"))
	lines.Buffer(nil, maxState)
	for lines.Scan() {
		if strings.TrimRight(lines.Text(), " ") != "---" {
			one.WriteString(lines.Text() + "\n")
			continue
		}
		d := document{file: path, text: one.String()}
		one.Reset()
		if err := yaml.Unmarshal([]byte(d.text), &d); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if d.Kind != "" {
			out = append(out, d)
		}
	}
	return out, lines.Err()
}

// kindOf returns the name of a kind in one form: in lower case, without a group, in the singular.
func kindOf(kind string) string {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	if short, ok := map[string]string{"po": "pod", "deploy": "deployment", "svc": "service", "cm": "configmap",
		"ev": "event"}[kind]; ok {
		return short
	}
	if policy, ok := strings.CutSuffix(kind, "policies"); ok {
		return policy + "policy"
	}
	return strings.TrimSuffix(kind, "s")
}

// kinds lists the objects among which a user can choose.
func kinds(docs []document) string {
	out := []string{"pods", "events"}
	for _, d := range docs {
		out = append(out, strings.ToLower(d.Kind)+"/"+d.Metadata.Name)
	}
	return strings.Join(out, ", ")
}

// gpu has the values of nvidia-smi for a pod: percent of the time, and MiB.
type gpu struct{ percent, used, total float64 }

func readGPU(ctx context.Context, p pod) (g gpu, err error) {
	if p.metrics == "" {
		return g, fmt.Errorf("pod %s has no accelerator", p.name)
	}
	page, err := fetchPage(ctx, p.metrics)
	if err != nil {
		return g, err
	}
	for name, to := range map[string]*float64{"vllm_gpu_utilization_percent": &g.percent,
		"vllm_gpu_memory_used_bytes": &g.used, "vllm_gpu_memory_total_bytes": &g.total} {
		_, v, ok := metrics.Spec{Name: name}.Latest(page)
		if !ok {
			return g, fmt.Errorf("pod %s has no accelerator", p.name)
		}
		*to = v
	}
	g.used, g.total = g.used/(1<<20), g.total/(1<<20)
	return g, nil
}
