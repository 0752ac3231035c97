package metrics

import (
	"bytes"
	"strconv"
)

// A Reader reads the pages of a pool. Such pages have the same names and labels line for line, and different numbers. A
// page that differs from an earlier one only in plain numbers is as valid as that one, so the Reader reads only the
// numbers. This takes a twentieth of the time, and happens twenty times a second for every endpoint. Parse reads every
// other page.
type Reader struct {
	want  func(name string) bool
	forms []*form // the most recently used first
}

// NewReader returns a reader that keeps the families for which want is true.
func NewReader(want func(name string) bool) *Reader { return &Reader{want: want} }

// Pages of one pool have different labels where its endpoints serve different models, so the Reader keeps a few forms.
// It keeps no form of a page that is too long.
const (
	maxForms     = 8
	maxFormBytes = 1 << 20
)

// Read reads a page as Parse does. The result is valid until the next Read.
func (r *Reader) Read(page []byte) (Page, error) {
	for i, f := range r.forms {
		if f.fits(page) {
			copy(r.forms[1:i+1], r.forms[:i])
			r.forms[0] = f
			return f.page, nil
		}
	}
	p, err := Parse(page, r.want)
	if err != nil || len(page) > maxFormBytes {
		return p, err
	}
	if f := formOf(page, p, r.want); f != nil {
		if len(r.forms) < maxForms {
			r.forms = append(r.forms, nil)
		}
		copy(r.forms[1:], r.forms)
		r.forms[0] = f
	}
	return p, nil
}

// form is a page with gaps in place of its plain numbers.
type form struct {
	text []byte
	gaps []gap
	tail int // where the text after the last gap begins
	page Page
}

// gap is one number. The text from..to precedes it, and sample receives it, if the sample is wanted.
type gap struct {
	from, to int
	sample   *Sample
}

// formOf finds the plain numbers of a whole page. It returns nil where it cannot safely match numbers to samples.
func formOf(page []byte, p Page, want func(string) bool) *form {
	f := &form{text: bytes.Clone(page), page: Page{}}
	for name, fam := range p { // the caller owns Parse's result
		f.page[name] = &Family{Typed: fam.Typed, Samples: append([]Sample(nil), fam.Samples...)}
	}
	next := map[string]int{} // samples found so far, by family
	for at := 0; at < len(f.text); {
		n := bytes.IndexByte(f.text[at:], '\n')
		if n < 0 {
			return nil
		}
		line := f.text[at : at+n]
		end := at + n
		switch {
		case len(line) == 0 || line[0] == '#':
			at = end + 1
			continue
		case line[0] == '{' || line[0] == ' ' || line[0] == '\t' || line[0] == '"':
			return nil // rare forms, whose name is not at the beginning
		}
		name := string(line[:bytes.IndexAny(append(line[:n:n], ' '), "{ \t\"")])
		value := bytes.LastIndexByte(line, ' ') + 1
		v, length, ok := plain(line[value:])
		var s *Sample
		if want(name) {
			fam := f.page[name]
			if fam == nil || next[name] == len(fam.Samples) {
				return nil
			}
			s = &fam.Samples[next[name]]
			next[name]++
			if ok && s.Value != v {
				ok = false // the number is a timestamp or part of a label
			}
		}
		if ok && value > 0 && value+length == n && bare(line[:value]) {
			f.gaps = append(f.gaps, gap{f.tail, at + value, s})
			f.tail = end
		}
		at = end + 1
	}
	for name, fam := range f.page {
		if next[name] != len(fam.Samples) {
			return nil // some samples have names of their own, as in histograms
		}
	}
	return f
}

// bare reports whether only a name, perhaps with labels, precedes a number. After another number it would be a
// timestamp.
func bare(s []byte) bool {
	s = bytes.TrimRight(s, " \t")
	if i := bytes.IndexByte(s, '{'); i >= 0 {
		return s[len(s)-1] == '}'
	}
	return !bytes.ContainsAny(s, " \t")
}

// fits reports whether a page has the form. If so, it stores the page's numbers in the form.
func (f *form) fits(page []byte) bool {
	for i := range f.gaps {
		g := &f.gaps[i]
		fixed := f.text[g.from:g.to]
		if len(page) < len(fixed) || !bytes.Equal(page[:len(fixed)], fixed) {
			return false
		}
		page = page[len(fixed):]
		v, n, ok := plain(page)
		if !ok || n == len(page) || page[n] != '\n' {
			return false
		}
		page = page[n:]
		if g.sample != nil {
			g.sample.Value = v
		}
	}
	return bytes.Equal(page, f.text[f.tail:])
}

// plain parses digits, with an optional point and exponent, at the beginning of s. n is their length. The value is
// never negative, infinite or NaN.
func plain(s []byte) (v float64, n int, ok bool) {
	whole := uint64(0)
	for n < len(s) && s[n]-'0' <= 9 && n < 18 {
		whole = whole*10 + uint64(s[n]-'0')
		n++
	}
	if n == 0 {
		return 0, 0, false
	}
	if n < 16 {
		if n == len(s) || s[n] == '\n' {
			return float64(whole), n, true
		}
		if n+1 < len(s) && s[n] == '.' && s[n+1] == '0' && (n+2 == len(s) || s[n+2] == '\n') {
			return float64(whole), n + 2, true
		}
	}
	digits := func() bool {
		from := n
		for n < len(s) && s[n]-'0' <= 9 {
			n++
		}
		return n > from
	}
	digits()
	if n < len(s) && s[n] == '.' {
		if n++; !digits() {
			return 0, 0, false
		}
	}
	if n < len(s) && s[n] == 'e' {
		if n++; n < len(s) && (s[n] == '+' || s[n] == '-') {
			n++
		}
		if !digits() {
			return 0, 0, false
		}
	}
	v, err := strconv.ParseFloat(view(s[:n]), 64)
	return v, n, err == nil
}
