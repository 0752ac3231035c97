package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/flow"
)

// Ids, names, headers and details come from clients, from other programs and
// from recordings that somebody sent. All that they could steer a terminal with
// is written out here, and nowhere else: the views and the summary print what
// Printable lets through, and everything without colours goes through a
// PrintableWriter.

// steers tells whether a character could steer a terminal, or turn around how a
// line reads (https://www.unicode.org/reports/tr9/#Explicit_Directional_Embeddings).
func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
}

// plain tells, and fast, of nearly all text that nothing need be done.
func plain[T string | []byte](text T, lines bool) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && !(lines && (c == '\n' || c == '\t')) {
			return false
		}
	}
	return true
}

// Printable is text that came from outside, for a terminal: control characters
// are written out as \u001b, bytes that are no UTF-8 as \xff.
func Printable(text string) string {
	if plain(text, false) {
		return text
	}
	return string(appendPrintable(nil, []byte(text), ""))
}

// appendPrintable writes text out; the control characters in keep stay. Inside
// a JSON text, where control characters stand in strings alone, what is
// written is the same text.
func appendPrintable(out, text []byte, keep string) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r != utf8.RuneError && steers(r) && !strings.ContainsRune(keep, r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// PrintableWriter writes to w with everything but line ends and tabs written
// out that could steer a terminal. It is safe for concurrent use.
func PrintableWriter(w io.Writer) io.Writer { return &printable{w: w} }

type printable struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // a character's bytes, the last of which are still to come
}

func (p *printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := b
	if len(p.rest) > 0 {
		text = append(p.rest, b...)
		p.rest = nil
	}
	if whole := wholeRunes(text); whole < len(text) {
		p.rest = append([]byte(nil), text[whole:]...)
		text = text[:whole]
	}
	if !plain(text, true) {
		text = appendPrintable(nil, text, "\n\t")
	}
	if len(text) == 0 {
		return len(b), nil
	}
	if _, err := p.w.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// wholeRunes is the length of text without a last character that is cut.
func wholeRunes(text []byte) int {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}

// shown is an event whose names a view may print and keep: none is longer than
// a line. Its details' values are for value, which clips and quotes them.
func shown(e flow.Event) flow.Event {
	e.Hop, e.Step, e.Endpoint = flow.Hop(name(string(e.Hop))), flow.Step(name(string(e.Step))), name(e.Endpoint)
	for i := range e.Details {
		if key := e.Details[i].Key; name(key) != key {
			e.Details = slices.Clone(e.Details)
			for j := range e.Details {
				e.Details[j].Key = name(e.Details[j].Key)
			}
			break
		}
	}
	return e
}

// name is Printable text of a bounded length.
func name(text string) string {
	if len(text) > longestName {
		text = text[:longestName] + "…"
	}
	return Printable(text)
}

// printable is a summary all of whose names may be printed.
func (s Summary) printable() Summary {
	s.Outcomes, s.Endpoints, s.PrefillServers = printableKeys(s.Outcomes), printableKeys(s.Endpoints), printableKeys(s.PrefillServers)
	s.NotCompleted = printableKeys(s.NotCompleted)
	for o, ids := range s.NotCompleted {
		s.NotCompleted[o] = printableAll(ids)
	}
	if x := s.ByHand; x != nil {
		s.ByHand = &ByHand{x.Requests, printableKeys(x.Statuses), printableKeys(x.Endpoints)}
	}
	s.Hops = printableKeys(s.Hops)
	for hop, steps := range s.Hops {
		s.Hops[hop] = printableKeys(steps)
	}
	s.Spans = slices.Clone(s.Spans)
	for i := range s.Spans {
		s.Spans[i].Name, s.Spans[i].Slowest = Printable(s.Spans[i].Name), name(s.Spans[i].Slowest)
	}
	s.IndexLag = slices.Clone(s.IndexLag)
	for i := range s.IndexLag {
		x := &s.IndexLag[i]
		x.Index, x.Excuse = Printable(x.Index), Printable(x.Excuse)
	}
	s.Warnings = slices.Clone(s.Warnings)
	for i := range s.Warnings {
		x := &s.Warnings[i]
		x.Plugin, x.URL, x.Reason = Printable(x.Plugin), Printable(x.URL), Printable(x.Reason)
	}
	if x := s.Predictions; x != nil {
		told := *x
		told.Endpoints = printableKeys(x.Endpoints)
		s.Predictions = &told
	}
	s.Refusals, s.Incidents, s.Load = printableKeys(s.Refusals), slices.Clone(s.Incidents), slices.Clone(s.Load)
	for i := range s.Incidents {
		x := &s.Incidents[i]
		x.Hop, x.What, x.Endpoint = Printable(x.Hop), Printable(x.What), Printable(x.Endpoint)
	}
	for i := range s.Load {
		x := &s.Load[i]
		x.Pool, x.Role = Printable(x.Pool), Role(Printable(string(x.Role)))
	}
	s.Classes = slices.Clone(s.Classes)
	for i := range s.Classes {
		s.Classes[i].Name = Printable(s.Classes[i].Name)
	}
	s.Pools = slices.Clone(s.Pools)
	for i := range s.Pools {
		x := &s.Pools[i]
		x.Name, x.Pickers, x.Groups = Printable(x.Name), printableKeys(x.Pickers), slices.Clone(x.Groups)
		for k := range x.Groups {
			x.Groups[k].Name = Printable(x.Groups[k].Name)
		}
	}
	s.Servers = slices.Clone(s.Servers)
	for i := range s.Servers {
		x := &s.Servers[i]
		x.Pool, x.Deployment, x.Accelerator = Printable(x.Pool), Printable(x.Deployment), Printable(x.Accelerator)
		if p := x.Price; p != nil {
			x.Price = &PriceTold{p.PerGPUHour, Printable(p.Source), p.Cost}
		}
	}
	s.Expectations = slices.Clone(s.Expectations)
	for i := range s.Expectations {
		x := &s.Expectations[i]
		x.What, x.Expected, x.Found = Printable(x.What), Printable(x.Expected), Printable(x.Found)
	}
	return s
}

func printableAll(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = name(text)
	}
	return out
}

func printableKeys[K ~string, V any](m map[K]V) map[K]V {
	if m == nil {
		return nil
	}
	out := make(map[K]V, len(m))
	for k, v := range m {
		out[K(Printable(string(k)))] = v
	}
	return out
}
