// Package observe makes what a Prometheus and a Grafana need to look at windtunnel, or
// at an llm-d: the scrape configuration with document 003's jobs, recording and alerting
// rules, dashboards and their provisioning. docs/observe.md tells of each.
//
// Nothing here has a clock, a socket or a process; live/observe starts what is installed.
package observe

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"
)

//go:embed files
var files embed.FS

// Options say what Files makes.
type Options struct {
	// Interval is how often Prometheus scrapes, and works rules out: whole seconds, at
	// least one. Rules look at a minute and more, so at most 15 s have them see
	// something.
	Interval time.Duration
	// Prometheus is where Grafana finds it, such as http://127.0.0.1:9091.
	Prometheus string
	// Dir is where the files will lie, as an absolute path, for Grafana's provisioning.
	Dir string
	// Targets are those of Prometheus by job; nil leaves their files out.
	Targets map[string][]Target
}

// Names of files that others look for, below the folder.
const (
	PrometheusFile = "prometheus.yml"
	Provisioning   = "grafana/provisioning"
	dashboards     = "grafana/dashboards"
)

// Files are the files of a folder by their slashed names.
func Files(o Options) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range []string{PrometheusFile, "kubernetes.yml"} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			return nil, err
		}
		out[name] = []byte(strings.ReplaceAll(string(text), "INTERVAL", fmt.Sprintf("%ds", int(o.Interval.Seconds()))))
	}
	for name, make := range map[string]func() ([]byte, error){"rules/recordings.yml": recordingFile,
		"rules/alerts.yml":                           alertFile,
		Provisioning + "/datasources/prometheus.yml": o.datasource,
		Provisioning + "/dashboards/llm-d.yml":       o.provider} {
		text, err := make()
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	for _, d := range Dashboards {
		text, err := d.JSON()
		if err != nil {
			return nil, err
		}
		out[path.Join(dashboards, d.File+".json")] = text
	}
	if o.Targets == nil {
		return out, nil
	}
	for name, list := range TargetFiles(o.Targets) {
		out[name] = list
	}
	return out, nil
}

// TargetFiles are the files of targets, one for each job, by their slashed names.
func TargetFiles(targets map[string][]Target) map[string][]byte {
	out := map[string][]byte{}
	for _, job := range Jobs() {
		list := targets[job]
		if list == nil {
			list = []Target{}
		}
		text, _ := json.MarshalIndent(list, "", "  ") // strings alone
		out["targets/"+job+".json"] = append(text, '\n')
	}
	return out
}
