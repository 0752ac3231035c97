package session

import (
	"cmp"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// agentHeaders are the headers in which coding agents name their session.
var agentHeaders = []string{"x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}

// agentIdentity is agent-identity: the session of a coding agent is the flow
// of its requests, unless the client names one.
type agentIdentity struct {
	named
	Additional []string `json:"additionalSessionHeaders"`

	headers []string
}

// NewAgentIdentity makes an agent-identity.
var NewAgentIdentity = picker.Of(agentIdentity{})

// Complete implements picker.Completer.
func (a *agentIdentity) Complete(_ *picker.Builder, _ string) {
	for _, h := range a.Additional {
		a.headers = append(a.headers, strings.ToLower(h))
	}
	a.headers = append(a.headers, agentHeaders...)
}

// ReadsSecrets returns the headers that may be credentials. Their digests name the flow.
func (a *agentIdentity) ReadsSecrets() []string { return picker.Secrets(a.headers...) }

// RequestHeader names the flow.
func (a *agentIdentity) RequestHeader(r *picker.Request) {
	for _, h := range a.headers {
		if id := r.Remembered(h); id != "" {
			r.FairnessID = cmp.Or(r.FairnessID, id)
			return
		}
	}
}
