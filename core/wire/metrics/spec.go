package metrics

import (
	"fmt"
	"regexp"
	"strings"
)

// Spec names one signal: a metric, and the labels that its series must have. Its text has PromQL's form,
// name{label="value"}.
type Spec struct {
	Name   string
	Labels []Label
}

var specForm = regexp.MustCompile(`^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?\s*$`)
var pairForm = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*(?:"([^"]*)"|([^",}\s]+))\s*$`)

// ParseSpec parses a Spec. "" gives the empty Spec, which finds nothing.
func ParseSpec(text string) (Spec, error) {
	if text == "" {
		return Spec{}, nil
	}
	m := specForm.FindStringSubmatch(text)
	if m == nil {
		return Spec{}, fmt.Errorf("not a valid metric specification: %q; expected name or name{label=\"value\"}", text)
	}
	s := Spec{Name: m[1]}
	if strings.TrimSpace(m[2]) == "" {
		return s, nil
	}
	for pair := range strings.SplitSeq(m[2], ",") {
		lm := pairForm.FindStringSubmatch(pair)
		if lm == nil {
			return Spec{}, fmt.Errorf("invalid label pair %q in specification %q", pair, text)
		}
		s.Labels = append(s.Labels, Label{lm[1], lm[2] + lm[3]})
	}
	return s, nil
}

func (s Spec) matches(m *Sample) bool {
	for _, want := range s.Labels {
		found := false
		for _, l := range m.Labels {
			if l.Name == want.Name {
				found = l.Value == want.Value
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// Latest returns the series that counts: the one with the newest timestamp, and the first of equal ones. Its value is 0
// in a family without a TYPE line.
func (s Spec) Latest(p Page) (m *Sample, value float64, ok bool) {
	f := p[s.Name]
	if s.Name == "" || f == nil {
		return nil, 0, false
	}
	newest := int64(-1)
	for i := range f.Samples {
		if c := &f.Samples[i]; c.Timestamp > newest && s.matches(c) {
			newest, m = c.Timestamp, c
		}
	}
	if m == nil {
		return nil, 0, false
	}
	if f.Typed {
		value = m.Value
	}
	return m, value, true
}

// Largest returns the series with the largest value, and the first of equal ones. It finds the newest
// vllm:lora_requests_info, whose value is a timestamp.
func (s Spec) Largest(p Page) (m *Sample, ok bool) {
	f := p[s.Name]
	if s.Name == "" || f == nil {
		return nil, false
	}
	best := -1.0
	for i := range f.Samples {
		c := &f.Samples[i]
		v := 0.0
		if f.Typed {
			v = c.Value
		}
		if s.matches(c) && v > best {
			best, m = v, c
		}
	}
	return m, m != nil
}

// Sum returns the sum of the series' values, 0 where the page has none.
func (s Spec) Sum(p Page) (sum float64) {
	if f := p[s.Name]; s.Name != "" && f != nil {
		for i := range f.Samples {
			if s.matches(&f.Samples[i]) {
				sum += f.Samples[i].Value
			}
		}
	}
	return sum
}
