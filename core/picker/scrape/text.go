// Package scrape reads the metrics pages of model servers: the Prometheus text
// format, and which series of which engine means what.
//
// It keeps the habits of the real EPP that decide where requests go: a page
// with one broken line counts for nothing; a family that is absent leaves the
// last figure; a sample without a TYPE line is 0; of several series the first
// wins unless timestamps say otherwise.
package scrape

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unsafe"
)

// MaxPageBytes is the longest page that is read.
const MaxPageBytes = 16 << 20

// Family is one metric family of a page, with the samples in their order.
type Family struct {
	// Typed is true for gauges and counters; other samples have no value here.
	Typed   bool
	Samples []Sample
}

// Sample is one line of a family.
type Sample struct {
	Labels    []Label
	Value     float64
	Timestamp int64 // milliseconds; 0 when the line has none
}

// Label is one name="value" pair.
type Label struct{ Name, Value string }

// Get is the value of a label, "" when it is absent.
func (s *Sample) Get(name string) string {
	for i := range s.Labels {
		if s.Labels[i].Name == name {
			return s.Labels[i].Value
		}
	}
	return ""
}

// Page holds the wanted families of a metrics page.
type Page map[string]*Family

// Parse reads a page in the Prometheus text format and keeps the families for
// which want is true. A malformed line anywhere is an error.
func Parse(page []byte, want func(name string) bool) (Page, error) {
	if len(page) > MaxPageBytes {
		return nil, fmt.Errorf("metrics page of %d bytes is larger than %d", len(page), MaxPageBytes)
	}
	out := Page{}
	for n := 1; len(page) > 0; n++ {
		line := page
		if i := bytes.IndexByte(page, '\n'); i >= 0 {
			line, page = page[:i], page[i+1:]
		} else {
			// A page that breaks off in the middle of a line is not whole.
			if rest := bytes.TrimSpace(line); len(rest) > 0 && rest[0] != '#' {
				return nil, fmt.Errorf("metrics page line %d: the page ends without a newline", n)
			}
			page = nil
		}
		if err := out.line(bytes.Trim(line, " \t\r"), want); err != nil {
			return nil, fmt.Errorf("metrics page line %d: %w", n, err)
		}
	}
	return out, nil
}

func isName(c byte, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':' || !first && c >= '0' && c <= '9'
}

func name(s []byte) (n int) {
	for n < len(s) && isName(s[n], n == 0) {
		n++
	}
	return n
}

// blank leaves out leading blanks. It runs a few times per line of every page,
// and a loop is several times as fast as a trim with a set.
func blank(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	return s
}

// word cuts the first run of what is no blank from s.
func word(s []byte) (first, rest []byte) {
	s = blank(s)
	n := 0
	for n < len(s) && s[n] != ' ' && s[n] != '\t' {
		n++
	}
	return s[:n], blank(s[n:])
}

func (p Page) line(s []byte, want func(string) bool) error {
	if len(s) == 0 {
		return nil
	}
	if s[0] == '#' {
		return p.comment(s[1:], want)
	}
	n := name(s)
	if n == 0 {
		return fmt.Errorf("expected a metric name, got %.40q", s)
	}
	metric := s[:n]
	wanted := want(view(metric))
	s = blank(s[n:])
	var sample Sample
	if len(s) > 0 && s[0] == '{' {
		var err error
		if s, err = labels(s[1:], wanted, &sample); err != nil {
			return err
		}
	}
	number, rest := word(s)
	stamp, rest := word(rest)
	if len(number) == 0 || len(rest) > 0 {
		return fmt.Errorf("expected a value and at most a timestamp after %s, got %.40q", metric, s)
	}
	v, err := value(number)
	if err != nil {
		return err
	}
	sample.Value = v
	if len(stamp) > 0 {
		if sample.Timestamp, err = strconv.ParseInt(view(stamp), 10, 64); err != nil {
			return fmt.Errorf("expected a timestamp in milliseconds, got %.40q", stamp)
		}
	}
	if wanted {
		f := p.family(metric)
		f.Samples = append(f.Samples, sample)
	}
	return nil
}

// digits reads what most values of a page are: a short whole number, perhaps
// with ".0" behind it.
func digits(s []byte) (float64, bool) {
	if n := len(s); n > 2 && s[n-2] == '.' && s[n-1] == '0' {
		s = s[:n-2]
	}
	if len(s) == 0 || len(s) > 15 {
		return 0, false
	}
	v := int64(0)
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return float64(v), true
}

func value(s []byte) (float64, error) {
	if small, ok := digits(s); ok {
		return small, nil
	}
	v, err := strconv.ParseFloat(view(s), 64)
	if err != nil && !math.IsInf(v, 0) || bytes.IndexByte(s, '_') >= 0 || bytes.ContainsAny(s, "xXpP") {
		return 0, fmt.Errorf("expected a number, got %.40q", s)
	}
	return v, nil
}

func (p Page) comment(s []byte, want func(string) bool) error {
	kind, rest, ok := bytes.Cut(blank(s), []byte{' '})
	if !ok || string(kind) != "TYPE" {
		return nil
	}
	rest = blank(rest)
	n := name(rest)
	if n == 0 {
		return fmt.Errorf("expected a metric name after TYPE, got %.40q", rest)
	}
	typ := string(bytes.TrimSpace(rest[n:]))
	switch typ {
	case "gauge", "counter", "histogram", "summary", "untyped":
	default:
		return fmt.Errorf("unknown metric type %.40q", typ)
	}
	if !want(view(rest[:n])) {
		return nil
	}
	f := p.family(rest[:n])
	if len(f.Samples) > 0 {
		return fmt.Errorf("TYPE of %s comes after its samples", rest[:n])
	}
	f.Typed = typ == "gauge" || typ == "counter"
	return nil
}

func (p Page) family(metric []byte) *Family {
	f := p[view(metric)]
	if f == nil {
		f = &Family{}
		p[string(metric)] = f
	}
	return f
}

// labels reads up to the closing brace and returns what follows it.
func labels(s []byte, keep bool, sample *Sample) ([]byte, error) {
	for {
		s = blank(s)
		if len(s) == 0 {
			return nil, fmt.Errorf("labels without a closing brace")
		}
		if s[0] == '}' {
			return s[1:], nil
		}
		n := name(s)
		if n == 0 {
			return nil, fmt.Errorf("expected a label name, got %.40q", s)
		}
		key := s[:n]
		s = blank(s[n:])
		if len(s) == 0 || s[0] != '=' {
			return nil, fmt.Errorf("expected '=' after label %s", key)
		}
		s = blank(s[1:])
		if len(s) == 0 || s[0] != '"' {
			return nil, fmt.Errorf("expected '\"' after label %s", key)
		}
		val, rest, err := quoted(s[1:], keep)
		if err != nil {
			return nil, err
		}
		if keep {
			sample.Labels = append(sample.Labels, Label{string(key), val})
		}
		s = blank(rest)
		switch {
		case len(s) > 0 && s[0] == ',':
			s = s[1:]
		case len(s) > 0 && s[0] == '}':
		default:
			return nil, fmt.Errorf("expected ',' or '}' after the value of label %s", key)
		}
	}
}

// quoted reads up to the closing quote; the text is only made if it is kept.
func quoted(s []byte, keep bool) (string, []byte, error) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			if !keep {
				return "", s[i+1:], nil
			}
			return string(s[:i]), s[i+1:], nil
		case '\\':
			return escaped(s)
		}
	}
	return "", nil, fmt.Errorf("label value without a closing quote")
}

func escaped(s []byte) (string, []byte, error) {
	var b []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return string(b), s[i+1:], nil
		case c == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b = append(b, '\n')
			case '"', '\\':
				b = append(b, s[i])
			default:
				return "", nil, fmt.Errorf("invalid escape \\%c in a label value", s[i])
			}
		default:
			b = append(b, c)
		}
	}
	return "", nil, fmt.Errorf("label value without a closing quote")
}

// view reads bytes as a string without copying; the result must not outlive them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
