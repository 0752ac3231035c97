package envoy

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// notes are comments in the output of `windtunnel config`. Each stands above the first field with that name.
var notes = map[string]string{
	"early_header_mutation_extensions": "Clients do not choose the destination; the picker does.",
	"failure_mode_allow":               "FailOpen: serve without the picker once its health check has failed.",
	"healthy_panic_threshold":          "Never send to what is known to be down.",
	"idle_timeout":                     "The backstop of a hold: above the picker's own deadline.",
	"message_timeout":                  "Envoy's default is 200ms; it does not apply to full-duplex bodies.",
	"no_traffic_interval":              "Envoy's default is once a minute.",
	"preserve_external_request_id":     "One x-request-id follows a request through every record.",
	"processing_mode": "Full duplex: the request body stays open while the picker waits for the " +
		"first token.",
	"request_timeout": "A body that trickles: off by default. The picker cuts it earlier; this is " +
		"above its hold limit, too.",
	"request_headers_timeout": "A head that trickles: off by default.",
	"stream_idle_timeout":     "Nothing moves during a prefill; the default of 5m would cut long ones.",
	"thresholds":              "Held requests pile up; the default of 1024 answers 503 beyond.",
	"status_on_error":         "The picker failed: 503, not the default 500.",
	"timeout":                 "Answers may take any time.",
}

// YAML returns the text of the bootstrap file, which `windtunnel config` prints and Start gives to Envoy. The same
// Config always gives the same text.
func (c Config) YAML() ([]byte, error) {
	b, err := c.Bootstrap()
	if err != nil {
		return nil, err
	}
	return toYAML(b)
}

// toYAML writes a message with its fields in the order of their numbers, which in Envoy's types puts names first.
func toYAML(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fail(BadConfig, err, "the configuration cannot be written: %v", err)
	}
	var doc yaml.Node // JSON is valid YAML
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fail(BadConfig, err, "the configuration cannot be written: %v", err)
	}
	restyle(&doc, map[string]bool{})
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, fail(BadConfig, err, "the configuration cannot be written: %v", err)
	}
	return out.Bytes(), enc.Close()
}

// truths are unquoted strings that Envoy's YAML parser takes for true or false. windtunnel's encoder quotes only two of
// them.
var truths = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true}

// restyle changes JSON's flow style to block style and adds the notes.
func restyle(n *yaml.Node, said map[string]bool) {
	if n.Style = 0; n.Tag == "!!str" && truths[strings.ToLower(n.Value)] {
		n.Style = yaml.DoubleQuotedStyle
	}
	for i, child := range n.Content {
		restyle(child, said)
		if n.Kind == yaml.MappingNode && i%2 == 0 && notes[child.Value] != "" && !said[child.Value] {
			said[child.Value] = true
			child.HeadComment = notes[child.Value]
		}
	}
}
