// Package observe writes the configuration of a Prometheus and a Grafana for windtunnel or for llm-d: the scrape
// configuration with document 003's jobs, recording and alerting rules, dashboards and their provisioning.
// docs/observe.md describes each file.
//
// Nothing here has a clock, a socket or a process. live/observe starts the installed programs.
package observe

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"
)

//go:embed files
var files embed.FS

// Options of Files.
type Options struct {
	// Interval is how often Prometheus scrapes and evaluates rules: whole seconds, from 1 to 15, because rules look at
	// a minute and more.
	Interval time.Duration
	// Prometheus is its URL for Grafana, such as http://127.0.0.1:9091.
	Prometheus string
	// Dir is the absolute path of the folder, for Grafana's provisioning.
	Dir string
	// Targets are Prometheus' targets by job. With nil, Files leaves their files out.
	Targets map[string][]Target
}

// Names of files below the folder.
const (
	PrometheusFile = "prometheus.yml"
	Provisioning   = "grafana/provisioning"
	dashboards     = "grafana/dashboards"
)

// Files returns the files of a folder by their slashed names.
func Files(o Options) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range []string{PrometheusFile, "kubernetes.yml"} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			return nil, err
		}
		out[name] = []byte(strings.ReplaceAll(string(text), "INTERVAL", fmt.Sprintf("%ds", int(o.Interval.Seconds()))))
	}
	for name, make := range map[string]func() ([]byte, error){
		"rules/recordings.yml": func() ([]byte, error) {
			return ruleFile("llm-d-recordings",
				Recordings)
		},
		"rules/alerts.yml": func() ([]byte, error) {
			return ruleFile("llm-d-alerts",
				Alerts)
		},
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
	if o.Targets != nil {
		maps.Copy(out, TargetFiles(o.Targets))
	}
	return out, nil
}

// TargetFiles returns the files of targets, one for each job, by their slashed names.
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
