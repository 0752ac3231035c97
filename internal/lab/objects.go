package lab

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/internal/files"
)

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
