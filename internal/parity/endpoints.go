package parity

import "encoding/json"

// endpointsYAML is the endpoints file of a line; JSON is YAML.
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
