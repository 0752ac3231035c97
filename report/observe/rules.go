package observe

import (
	"sigs.k8s.io/yaml"
)

// Rule is a recording rule, which has Record, or an alerting rule, as Prometheus reads it.
type Rule struct {
	Record string `json:"record"`
	Alert  string `json:"alert"`
	Expr   string `json:"expr"`
	// For is how long the condition holds before the alert fires, in PromQL's form.
	For string `json:"for"`
}

// Names of files below the folder.
const (
	recordings = "rules/recordings.yml"
	alerts     = "rules/alerts.yml"
)

// Recordings returns the queries that several panels and alerts share.
func Recordings() []Rule { return rules(recordings) }

// Alerts returns the rules that fire beyond a threshold, which ends their queries.
func Alerts() []Rule { return rules(alerts) }

func rules(name string) []Rule {
	var file struct{ Groups []struct{ Rules []Rule } }
	text, err := files.ReadFile("files/" + name)
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		panic(err) // the file is in the binary
	}
	return file.Groups[0].Rules
}
