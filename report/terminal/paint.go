package terminal

import "github.com/windtunnel/windtunnel/core/record"

// Paint colours text where colour is wanted and leaves it alone elsewhere.
type Paint bool

func (p Paint) with(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold, Dim, Red and Green are such text.
func (p Paint) Bold(text string) string  { return p.with("1", text) }
func (p Paint) Dim(text string) string   { return p.with("2", text) }
func (p Paint) Red(text string) string   { return p.with("31", text) }
func (p Paint) Green(text string) string { return p.with("32", text) }

// Request gives neighbouring requests different colours, so that their lines
// can be told apart where they interleave.
func (p Paint) Request(n int, text string) string {
	return p.with([]string{"36", "33", "35", "32", "34", "96", "93", "95"}[n%8], text)
}

var hopColors = map[record.Hop]string{record.Client: "34", record.Envoy: "35", record.EPP: "33", record.Sidecar: "36",
	record.Server: "32"}

// Hop gives each hop a colour of its own.
func (p Paint) Hop(h record.Hop, text string) string {
	if code, ok := hopColors[h]; ok {
		return p.with(code, text)
	}
	return text
}
