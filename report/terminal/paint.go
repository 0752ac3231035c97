package terminal

import "github.com/windtunnel/windtunnel/core/record"

// Paint colours text if it is true.
type Paint bool

func (p Paint) with(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold, Dim, Red and Green return the text in this style.
func (p Paint) Bold(text string) string  { return p.with("1", text) }
func (p Paint) Dim(text string) string   { return p.with("2", text) }
func (p Paint) Red(text string) string   { return p.with("31", text) }
func (p Paint) Green(text string) string { return p.with("32", text) }

// Request colours neighbouring requests differently, so that their lines can be distinguished.
func (p Paint) Request(n int, text string) string {
	return p.with([]string{"36", "33", "35", "32", "34", "96", "93", "95"}[n%8], text)
}

var hopColors = map[record.Hop]string{record.Client: "34", record.Envoy: "35", record.EPP: "33", record.Sidecar: "36",
	record.Server: "32"}

// Hop colours each hop differently.
func (p Paint) Hop(h record.Hop, text string) string {
	if code, ok := hopColors[h]; ok {
		return p.with(code, text)
	}
	return text
}
