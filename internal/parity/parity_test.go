package parity

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker/discovery"
)

// Every recorded line is played. Each difference must be a known deviation.
func TestRecordings(t *testing.T) {
	lines := 0
	for _, f := range recordings(t) {
		topic := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
		t.Run(topic, func(t *testing.T) {
			list, err := Load(os.DirFS(filepath.Dir(f)), filepath.Base(f))
			if err != nil {
				t.Fatal(err)
			}
			lines += len(list)
			for i := range list {
				l := &list[i]
				var faults []Fault
				switch {
				case l.Accepted != nil:
					faults = acceptance(l)
				case l.Steps == nil && l.StartErrors == nil || l.elsewhere() != "":
					continue
				default:
					faults = Play(l)
				}
				for _, f := range faults {
					if why := Deviation(topic, l.ID, f); why == "" {
						t.Errorf("%s %s | %s | recorded %.300s | got %.600s", l.ID, f.Unit, f.Field, f.Recorded, f.Got)
					}
				}
			}
		})
	}
	t.Logf("%d lines", lines)
}

// recordings returns the files. The ones that flow control also plays must be among them.
func recordings(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	shared, err := filepath.Glob("../../core/epp/picker/flowcontrol/testdata/recordings/*.jsonl.gz")
	if err != nil || len(shared) == 0 {
		t.Fatal("no recordings of flow control", err)
	}
	return append(files, shared...)
}

func acceptance(l *Line) []Fault {
	c, err := build(l, nil)
	if err == nil {
		_, err = core.New(c)
	}
	if err == nil && strings.Contains(l.Config, "NO_SUCH_FILE") {
		err = os.ErrNotExist
	}
	if err == nil && l.EndpointsFile != nil {
		_, err = discovery.Read("endpoints.yaml", []byte(*l.EndpointsFile), "")
	} else if err == nil {
		_, err = discovery.Read("endpoints.yaml", []byte(endpointsYAML(l.Endpoints)), "")
	}
	if got := err == nil; got != *l.Accepted {
		f := Fault{Unit: "accept", Field: "accepted", Recorded: "refused", Got: "accepted"}
		if !got {
			f.Recorded, f.Got = "accepted", err.Error()
		}
		return []Fault{f}
	}
	return effective(l, c)
}

// declared matches a plug-in in the real picker's text.
var declared = regexp.MustCompile(`\{Name: ([^,{}]+), Type: ([^,{}]+)`)

// effective compares the lists of plug-ins of an accepted configuration, including default ones.
func effective(l *Line, c core.Config) (faults []Fault) {
	if !*l.Accepted {
		return nil
	}
	plugins, _, _ := strings.Cut(l.Effective, "SchedulingProfiles:")
	for _, m := range declared.FindAllStringSubmatch(plugins, -1) {
		if c.Picker.Plugin(m[1]) == nil {
			faults = append(faults, Fault{"effective", m[1], m[2], "none"})
		}
	}
	return faults
}

// endpointsYAML returns the endpoints file of a line. JSON is valid YAML.
func endpointsYAML(list []Endpoint) string {
	type entry struct {
		Name      string            `json:"name,omitempty"`
		Namespace string            `json:"namespace,omitempty"`
		Address   string            `json:"address"`
		Port      any               `json:"port"`
		Labels    map[string]string `json:"labels,omitempty"`
	}
	out := struct {
		Endpoints []entry `json:"endpoints"`
	}{}
	for _, e := range list {
		out.Endpoints = append(out.Endpoints, entry{e.Name, e.Namespace, e.Address, e.Port, e.Labels})
	}
	b, _ := json.Marshal(out)
	return string(b)
}
