// Package lab has windtunnel's labs: stacks with a planted fault, for learning by repair. A lab is a file of labs/ and
// the manifests of a healthy stack in base/, in which the lab plants its fault. A Dir is the directory of a running
// lab, in which the user edits manifests and windtunnel keeps logs and addresses. Kubectl answers kubectl's commands
// from such a directory. Begin with Lab.
package lab

import (
	"cmp"
	_ "embed" // the archive
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/packed"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Areas are the sections of document 003's troubleshooting guide, and document 000's flow, in the order of the list.
var Areas = []string{"high latency", "routing", "ssrf", "kv transfer", "out of memory", "kv-cache manager", "held-open"}

// Lab is a stack with a planted fault.
type Lab struct {
	Name string `json:"-"`
	// Area is the section of document 003's guide, one of Areas.
	Area string `json:"area"`
	// Leaf is the cause in the decision trees, by its name in windtunnel diagnose.
	Leaf  string `json:"leaf"`
	Title string `json:"title"`
	// Base is the directory of the healthy stack's manifests, below base/.
	Base string `json:"base"`
	// Play says where Traffic is played for a check: live through the running stack, or virtual, in virtual time with
	// the edited manifests.
	Play string `json:"play" oneof:"live,virtual"`
	// Symptom is the text of the on-call page.
	Symptom string `json:"symptom"`
	// Look are the document's commands that show the cause.
	Look []string `json:"look" max:"16"`
	// Hints lead to the cause, the vaguest first.
	Hints []string `json:"hints" max:"16"`
	// Fault are the edits that plant the fault in the manifests of Base.
	Fault []Edit `json:"fault" max:"64"`
	// Remedies are repairs that pass; solve applies the first one. Wrong are repairs that do not pass.
	Remedies []Remedy `json:"remedies" max:"16"`
	Wrong    []Remedy `json:"wrong" max:"16"`
	// Traffic is a scenario: the requests that the stack gets, and what holds once the lab is repaired.
	Traffic string `json:"traffic"`
	// Metrics are limits of the effect of a live check's traffic.
	Metrics []Metric `json:"metrics" max:"16"`
	// Probes are requests that a live check sends to pods.
	Probes []Probe `json:"probes" max:"16"`
}

// Remedy is a repair, as edits of the faulty manifests. Without edits, it takes the fault out again.
type Remedy struct {
	Name  string `json:"name"`
	Does  string `json:"does"`
	Edits []Edit `json:"edits" max:"64"`
}

// Edit replaces each occurrence of a text in a manifest. Without Old, New is the whole file.
type Edit struct {
	File string `json:"file"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// archive has the directories labs and base; go test . -run TestPacked -update renews it.
//
//go:embed labs.zip
var archive []byte

var embedded = packed.Open(archive)

// All returns every lab, by areas and names.
func All() (out []*Lab, err error) {
	entries, err := fs.ReadDir(embedded, "labs")
	for _, e := range entries {
		l, bad := read(strings.TrimSuffix(e.Name(), ".yaml"))
		out, err = append(out, l), errors.Join(err, bad)
	}
	slices.SortStableFunc(out, func(a, b *Lab) int {
		return cmp.Compare(slices.Index(Areas, a.Area), slices.Index(Areas, b.Area))
	})
	return out, err
}

// Find returns the lab with a name.
func Find(name string) (*Lab, error) {
	if l, err := read(name); !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	all, err := All()
	if err != nil {
		return nil, err
	}
	names := terminal.Texts(len(all), func(i int) string { return all[i].Name })
	return nil, fmt.Errorf("found %q, expected the name of a lab; %s windtunnel lab list prints them all", name,
		strictyaml.DidYouMean(name, names))
}

func read(name string) (*Lab, error) {
	file := path.Join("labs", name+".yaml")
	text, err := fs.ReadFile(embedded, file)
	if err != nil {
		return nil, err
	}
	d, err := strictyaml.Parse(text, strictyaml.Options{File: file})
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: name}
	problems := d.Root().Decode(l)
	if !slices.Contains(Areas, l.Area) {
		err = fmt.Errorf("%s: area: found %q, expected one of %s", file, l.Area, strings.Join(Areas, ", "))
	}
	return l, errors.Join(d.Problems().Err(), problems.Err(), err)
}

// Files returns the lab's manifests by their names, with its fault and then with a remedy; nil is none.
func (l *Lab) Files(r *Remedy) (map[string]string, error) {
	dir := path.Join("base", l.Base)
	entries, err := fs.ReadDir(embedded, dir)
	if err != nil {
		return nil, err
	}
	healthy := map[string]string{}
	for _, e := range entries {
		text, err := fs.ReadFile(embedded, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		healthy[e.Name()] = string(text)
	}
	if r != nil && len(r.Edits) == 0 {
		return healthy, nil
	}
	faulty, err := edit(healthy, l.Fault)
	if err == nil && r != nil {
		faulty, err = edit(faulty, r.Edits)
	}
	return faulty, err
}

func edit(texts map[string]string, edits []Edit) (map[string]string, error) {
	out := maps.Clone(texts)
	for _, e := range edits {
		switch {
		case e.Old == "":
			out[e.File] = e.New
		case !strings.Contains(out[e.File], e.Old):
			return nil, fmt.Errorf("%s: found no %q to edit", e.File, e.Old)
		default:
			out[e.File] = strings.ReplaceAll(out[e.File], e.Old, e.New)
		}
	}
	return out, nil
}

// Remedy returns the remedy with a name, the first one for "".
func (l *Lab) Remedy(name string) (*Remedy, error) {
	var names []string
	for i := range l.Remedies {
		if r := &l.Remedies[i]; name == "" || r.Name == name {
			return r, nil
		}
		names = append(names, l.Remedies[i].Name)
	}
	return nil, fmt.Errorf("found %q, expected a remedy of lab %s: %s", name, l.Name, strings.Join(names, ", "))
}
