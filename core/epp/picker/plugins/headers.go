package plugins

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// headerTesting keeps the endpoints that the header
// test-epp-endpoint-selection names ("ip" or "ip:port", separated by commas):
// the conformance tests of the Gateway API Inference Extension. Without the
// header it keeps none or, where it is optional, all, as that project's own
// picker does (lwepp).
type headerTesting struct {
	named
	Optional bool `json:"optional"`
}

// Filter keeps the named endpoints.
func (f *headerTesting) Filter(c *picker.Cycle, in []int32) []int32 {
	v := c.Request.Headers.Get("test-epp-endpoint-selection")
	if v == "" && f.Optional {
		return in
	}
	return keep(in, func(i int32) bool {
		for part := range strings.SplitSeq(v, ",") {
			part = strings.TrimSpace(part)
			if s := c.State(i); part != "" && (part == s.Address || part == s.HostPort()) {
				return true
			}
		}
		return false
	})
}

// headerLabel prefers endpoints whose label equals a request header.
type headerLabel struct {
	named
	HeaderName string `json:"headerName"`
	LabelKey   string `json:"labelKey"`
}

// Configure implements picker.Configurer.
func (s *headerLabel) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	if s.HeaderName == "" || s.LabelKey == "" {
		return p.Errorf("headerName %q and labelKey %q; expected both", s.HeaderName, s.LabelKey)
	}
	s.HeaderName = strings.ToLower(s.HeaderName)
	return nil
}

// ReadsSecrets is its header, if that may be a credential.
func (s *headerLabel) ReadsSecrets() []string { return picker.Secrets(s.HeaderName) }

// Score is 1 where label and header agree.
func (s *headerLabel) Score(c *picker.Cycle, in []int32, scores []float64) {
	v := c.Request.Remembered(s.HeaderName)
	if v == "" {
		return
	}
	secret := len(s.ReadsSecrets()) > 0
	for j, i := range in {
		label := c.State(i).Labels[s.LabelKey]
		if secret {
			label = picker.Digest(label)
		}
		if label == v {
			scores[j] = 1
		}
	}
}
