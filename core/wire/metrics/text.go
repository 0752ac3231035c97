// Package metrics reads the metrics pages of model servers: the Prometheus text format, and the meaning of each
// engine's series.
//
// It has those properties of the real EPP that affect where requests go. The EPP ignores a page with one broken line,
// that is, a line that Prometheus' own parser for Go rejects: a blank after a value, a second TYPE line, no newline at
// the end. An absent family leaves the last value unchanged. A sample without a TYPE line is 0. Of several series, the
// first one counts, unless timestamps decide otherwise.
package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// MaxPageBytes is the length of the longest page that the package reads.
const MaxPageBytes = 16 << 20

// Family is one metric family of a page, with its samples in the page's order.
type Family struct {
	// Typed is true for gauges and counters. Samples of other families have no value here.
	Typed   bool
	Samples []Sample
}

// Sample is one line of a family.
type Sample struct {
	Labels    []Label
	Value     float64
	Timestamp int64 // milliseconds; 0 when the line has none
}

// Label is one pair name="value".
type Label struct{ Name, Value string }

// Get returns the value of a label, or "" where the sample has none of that name.
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

// kind is the type of a family, by its TYPE line or by the lack of one before its first sample.
type kind uint8

const (
	unsaid kind = iota
	untyped
	single // gauge or counter
	summary
	histogram
)

// seen is a family that the page has mentioned. Its name is a part of the page.
type seen struct {
	name   string
	kind   kind
	help   bool
	wanted *Family // nil: not wanted
}

// manyFamilies is the number of families up to which a linear search finds one. Pages with more get an index.
const manyFamilies = 96

// maxLabels limits the labels of one sample.
const maxLabels = 1024

type reader struct {
	page     []byte // the unread rest, from the current line
	want     func(name string) bool
	series   bool    // samples have their own names, as Prometheus stores them
	take     *Family // receives the current line's sample; nil: not wanted
	out      Page
	families []seen
	index    map[string]int
	last     int      // the previous line's family
	lastName []byte   // and its name in that line
	names    [][]byte // of the current line's labels
}

var (
	errEnds    = errors.New("the page ends in the middle of a line")
	errName    = errors.New("expected a metric name")
	errLabel   = errors.New("expected a label name")
	errNewline = errors.New("a quoted text runs into the next line")
)

// Parse reads a page in the Prometheus text format and keeps the families for
// which want is true. A malformed line anywhere is an error.
func Parse(page []byte, want func(name string) bool) (Page, error) {
	return (&reader{page: page, want: want}).read()
}

// ParseSeries is Parse with the names that Prometheus stores. The samples of a histogram or summary are under _bucket,
// _sum and _count, with the label le or quantile, and all have values.
func ParseSeries(page []byte, want func(name string) bool) (Page, error) {
	return (&reader{page: page, want: want, series: true}).read()
}

func (r *reader) read() (Page, error) {
	if len(r.page) > MaxPageBytes {
		return nil, fmt.Errorf("metrics page of %d bytes is larger than %d", len(r.page), MaxPageBytes)
	}
	r.out, r.last, r.families = Page{}, -1, make([]seen, 0, manyFamilies)
	for n := 1; ; n++ {
		r.page = blank(r.page)
		if len(r.page) == 0 {
			return r.out, nil
		}
		i := bytes.IndexByte(r.page, '\n')
		line := r.page
		if i >= 0 {
			line = line[:i]
		}
		if err := r.line(line, i >= 0); err != nil {
			return nil, fmt.Errorf("metrics page line %d: %w", n, err)
		}
		r.page = r.page[i+1:]
	}
}

// line parses one line. ended says whether a newline followed it.
func (r *reader) line(s []byte, ended bool) error {
	switch {
	case !ended:
		return errEnds
	case len(s) == 0:
		return nil
	case s[0] == '#':
		return r.comment(blank(s[1:]))
	}
	var smp Sample
	f := -1
	if s[0] == '{' { // the name is inside the braces
		s = s[1:]
	} else {
		name, rest, err := token(s, true)
		if err == nil && len(name) == 0 {
			err = errName
		}
		if err != nil {
			return fmt.Errorf("%w, got %.40q", err, s)
		}
		if f, err = r.family(name); err != nil {
			return err
		}
		s = blank(rest)
		if len(s) == 0 || s[0] != '{' {
			return r.value(f, s, &smp, bucket{})
		}
		s = s[1:]
	}
	s, f, b, err := r.labels(s, f, &smp)
	if err != nil {
		return err
	}
	return r.value(f, s, &smp, b)
}

// comment parses the text after a '#': a TYPE or HELP line, or any other comment.
func (r *reader) comment(s []byte) error {
	keyword, rest := word(s)
	isType := string(keyword) == "TYPE"
	if !isType && string(keyword) != "HELP" || len(keyword) == len(s) {
		return nil
	}
	name, rest, err := token(rest, true)
	switch {
	case err != nil:
		return err
	case len(rest) == 0:
		return nil // a name without a type
	case rest[0] != ' ' && rest[0] != '\t':
		return fmt.Errorf("%w after %s, got %.40q", errName, keyword, s)
	}
	f, err := r.lookup(name)
	if err != nil {
		return err
	}
	fam := &r.families[f]
	if rest = blank(rest); len(rest) == 0 {
		return nil
	}
	if !isType {
		if fam.help {
			return fmt.Errorf("second HELP line of %s", fam.name)
		}
		fam.help = true
		return escapes(rest)
	}
	if fam.kind != unsaid {
		return fmt.Errorf("second TYPE line of %s, or one after its samples", fam.name)
	}
	if bytes.IndexByte(rest, '\\') >= 0 {
		rest = bytes.ReplaceAll(rest, []byte{'\\'}, nil)
	}
	switch typ := strings.ToLower(string(rest)); typ {
	case "gauge", "counter":
		fam.kind = single
		if fam.wanted != nil {
			fam.wanted.Typed = true
		}
	case "untyped":
		fam.kind = untyped
	case "summary":
		fam.kind = summary
	case "histogram", "gauge_histogram", "gaugehistogram":
		fam.kind = histogram
	default:
		return fmt.Errorf("unknown metric type %.40q", typ)
	}
	return nil
}

// escapes checks a help text, which may escape only \\, \n and \".
func escapes(s []byte) error {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return nil
		}
		if i+1 == len(s) || s[i+1] != '\\' && s[i+1] != 'n' && s[i+1] != '"' {
			return fmt.Errorf("invalid escape in a help text: %.40q", s[i:])
		}
		s = s[i+2:]
	}
}

// family returns the family of a sample. From its first sample on, a family has a type.
func (r *reader) family(name []byte) (int, error) {
	f, err := r.lookup(name)
	if err != nil {
		return 0, err
	}
	if r.families[f].kind == unsaid {
		r.families[f].kind = untyped
	}
	if r.take = r.families[f].wanted; r.series {
		if r.take = r.out[string(name)]; r.take == nil && r.want(string(name)) {
			r.take = &Family{Typed: true}
			r.out[string(name)] = r.take
		}
	}
	return f, nil
}

// lookup finds the family of a name, or begins a new one. The series of histograms and summaries have names of their
// own.
func (r *reader) lookup(name []byte) (int, error) {
	if r.last >= 0 && bytes.Equal(r.lastName, name) {
		return r.last, nil
	}
	if !legal(name, true) {
		return 0, fmt.Errorf("invalid metric name %.40q", name)
	}
	f := r.find(name)
	if f < 0 {
		if base := cutSuffix(name); base != nil {
			if f = r.find(base); f >= 0 && r.families[f].kind != histogram &&
				(r.families[f].kind != summary || bytes.HasSuffix(name, []byte("_bucket"))) {
				f = -1
			}
		}
	}
	if f < 0 {
		f = len(r.families)
		n := seen{name: view(name)}
		if !r.series && r.want(n.name) {
			n.wanted = &Family{}
			r.out[string(name)] = n.wanted
		}
		r.families = append(r.families, n)
		if r.index != nil {
			r.index[n.name] = f
		}
	}
	r.last, r.lastName = f, name
	return f, nil
}

func (r *reader) find(name []byte) int {
	if len(r.families) < manyFamilies {
		for i := len(r.families) - 1; i >= 0; i-- {
			if r.families[i].name == view(name) {
				return i
			}
		}
		return -1
	}
	if r.index == nil {
		r.index = make(map[string]int, 4*manyFamilies)
		for i := range r.families {
			r.index[r.families[i].name] = i
		}
	}
	if i, ok := r.index[view(name)]; ok {
		return i
	}
	return -1
}

// cutSuffix returns the name of the histogram or summary to which a series may belong, or nil where its name allows
// none.
func cutSuffix(name []byte) []byte {
	for _, suffix := range [...]string{"_count", "_sum", "_bucket"} {
		if n := len(name) - len(suffix); n > 0 && string(name[n:]) == suffix {
			return name[:n]
		}
	}
	return nil
}

// bucket reports whether a sample has the label le or quantile.
type bucket struct{ is bool }

// labels parses the text from after an opening brace to the sample's value. f is -1 where the metric's name is inside
// the braces.
func (r *reader) labels(s []byte, f int, smp *Sample) ([]byte, int, bucket, error) {
	var b bucket
	r.names = r.names[:0]
	for first := f < 0; ; first = false {
		s = blank(s)
		if len(s) > 0 && s[0] == '}' {
			if f < 0 {
				return nil, f, b, errName
			}
			return blank(s[1:]), f, b, nil
		}
		name, rest, err := token(s, false)
		if err == nil && len(name) == 0 {
			err = errLabel
		}
		if err != nil {
			return nil, f, b, fmt.Errorf("%w, got %.40q", err, s)
		}
		rest = blank(rest)
		switch {
		case len(rest) == 0:
			return nil, f, b, errLabel
		case first && rest[0] != '=':
			if f, err = r.family(name); err != nil {
				return nil, f, b, err
			}
			if rest[0] != ',' && rest[0] != '}' {
				return nil, f, b, fmt.Errorf("%w, got %.40q", errName, s)
			}
			s = rest
			if rest[0] == ',' {
				s = rest[1:]
			}
			continue
		case rest[0] != '=':
			return nil, f, b, fmt.Errorf("expected '=' after label %.40s", name)
		case f < 0:
			return nil, f, b, errName
		case string(name) == "__name__" || !legal(name, false):
			return nil, f, b, fmt.Errorf("invalid label name %.40q", name)
		}
		k := r.families[f].kind
		special := k == summary && string(name) == "quantile" || k == histogram && string(name) == "le"
		if !special {
			if len(r.names) == maxLabels {
				return nil, f, b, fmt.Errorf("a sample with more than %d labels", maxLabels)
			}
			for _, n := range r.names {
				if bytes.Equal(n, name) {
					return nil, f, b, fmt.Errorf("label %.40s stands twice", name)
				}
			}
			r.names = append(r.names, name)
		}
		rest = blank(rest[1:])
		if len(rest) == 0 || rest[0] != '"' {
			return nil, f, b, fmt.Errorf("expected '\"' after label %.40s", name)
		}
		val, rest, err := quoted(rest[1:])
		if err != nil {
			return nil, f, b, err
		}
		if special {
			at, err := number(val)
			if err != nil {
				return nil, f, b, err
			}
			b.is = at == at
		}
		if r.take != nil && (r.series || !special) {
			smp.Labels = append(smp.Labels, Label{string(name), string(val)})
		}
		switch s = blank(rest); {
		case len(s) > 0 && s[0] == ',':
			s = s[1:]
		case len(s) > 0 && s[0] == '}':
			return blank(s[1:]), f, b, nil
		default:
			return nil, f, b, fmt.Errorf("expected ',' or '}' after the value of label %.40s", name)
		}
	}
}

// value parses the text after a sample's name and labels.
func (r *reader) value(f int, s []byte, smp *Sample, b bucket) error {
	text := s[:untilBlank(s)]
	v, err := number(text)
	if err != nil {
		return err
	}
	fam := &r.families[f]
	if v < 0 && fam.kind == histogram &&
		(b.is || len(r.lastName) > len(fam.name) && bytes.HasSuffix(r.lastName, []byte("_count"))) {
		return fmt.Errorf("negative count in histogram %s", fam.name)
	}
	smp.Value = v
	if s = s[len(text):]; len(s) > 0 {
		if smp.Timestamp, err = strconv.ParseInt(view(blank(s)), 10, 64); err != nil {
			return fmt.Errorf("expected an integer as timestamp, got %.40q", s)
		}
	}
	if r.take != nil {
		r.take.Samples = append(r.take.Samples, *smp)
	}
	return nil
}

// number parses a value. Most values on a page are short whole numbers, some with ".0" at the end.
func number(s []byte) (float64, error) {
	d := s
	if n := len(d); n > 2 && d[n-2] == '.' && d[n-1] == '0' {
		d = d[:n-2]
	}
	if len(d) > 0 && len(d) <= 15 {
		v, i := int64(0), 0
		for ; i < len(d) && d[i] >= '0' && d[i] <= '9'; i++ {
			v = v*10 + int64(d[i]-'0')
		}
		if i == len(d) {
			return float64(v), nil
		}
	}
	v, err := strconv.ParseFloat(view(s), 64)
	if err != nil || bytes.ContainsAny(s, "pP_") {
		return 0, fmt.Errorf("expected a number, got %.40q", s)
	}
	return v, nil
}

func isName(c byte, first, colon bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || colon && c == ':' || !first && c >= '0' &&
		c <= '9'
}

// legal reports whether a name is allowed. Every unquoted name is.
func legal(s []byte, metric bool) bool {
	for i, c := range s {
		if !isName(c, i == 0, metric) {
			return false
		}
	}
	return len(s) > 0
}

// token parses the name of a metric or label, which may be quoted.
func token(s []byte, metric bool) (name, rest []byte, err error) {
	n := 0
	for n < len(s) && isName(s[n], n == 0, metric) {
		n++
	}
	if n == len(s) || s[n] != '"' {
		return s[:n], s[n:], nil
	}
	val, rest, err := quoted(s[n+1:])
	if err != nil || n == 0 {
		return val, rest, err
	}
	return append(bytes.Clone(s[:n]), val...), rest, nil
}

// quoted parses up to the closing quote. The result is a part of s if it has no escapes.
func quoted(s []byte) (text, rest []byte, err error) {
	i := 0
	for i < len(s) && s[i] != '"' && s[i] != '\\' {
		i++
	}
	if i < len(s) && s[i] == '"' {
		return s[:i], s[i+1:], valid(s[:i])
	}
	b := bytes.Clone(s[:i])
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b, s[i+1:], valid(b)
		case c != '\\':
			b = append(b, c)
		case i+1 == len(s):
			return nil, nil, errNewline
		default:
			i++
			switch s[i] {
			case 'n':
				b = append(b, '\n')
			case '"', '\\':
				b = append(b, s[i])
			default:
				return nil, nil, fmt.Errorf("invalid escape \\%c in a label value", s[i])
			}
		}
	}
	return nil, nil, errNewline
}

func valid(s []byte) error {
	if !utf8.Valid(s) {
		return fmt.Errorf("label value %.40q is not UTF-8", s)
	}
	return nil
}

// blank removes leading blanks. It runs a few times per line of every page, and a loop is several times as fast as a
// trim with a set.
func blank(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	return s
}

func untilBlank(s []byte) int {
	n := 0
	for n < len(s) && s[n] != ' ' && s[n] != '\t' {
		n++
	}
	return n
}

// word splits the first run without blanks from s.
func word(s []byte) (first, rest []byte) {
	n := untilBlank(s)
	return s[:n], blank(s[n:])
}

// view returns bytes as a string without a copy. The result must not outlive the bytes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
