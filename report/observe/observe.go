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
	fill := strings.NewReplacer("INTERVAL", fmt.Sprintf("%ds", int(o.Interval.Seconds())), "PROMETHEUS", o.Prometheus)
	for _, name := range []string{PrometheusFile, "kubernetes.yml", recordings, alerts,
		Provisioning + "/datasources/prometheus.yml"} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			return nil, err
		}
		out[name] = []byte(fill.Replace(string(text)))
	}
	var err error
	if out[Provisioning+"/dashboards/llm-d.yml"], err = o.provider(); err != nil {
		return nil, err
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
