package report

import "github.com/windtunnel/windtunnel/core/flow"

// paint colours text where colour is wanted and leaves it alone elsewhere.
type paint struct{ on bool }

func (p paint) with(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) bold(text string) string { return p.with("1", text) }
func (p paint) dim(text string) string  { return p.with("2", text) }
func (p paint) red(text string) string  { return p.with("31", text) }

// request gives neighbouring requests different colours, so that their lines
// can be told apart where they interleave.
func (p paint) request(n int, text string) string {
	return p.with([]string{"36", "33", "35", "32", "34", "96", "93", "95"}[n%8], text)
}

var hopColors = map[flow.Hop]string{flow.Client: "34", flow.Envoy: "35", flow.EPP: "33", flow.Sidecar: "36", flow.Server: "32"}

func (p paint) hop(h flow.Hop, text string) string {
	if code, ok := hopColors[h]; ok {
		return p.with(code, text)
	}
	return text
}
