package inputlog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// scraped is what came of a scrape: a whole page, what changed since the last
// one of the same endpoint and source, or an error. Without any of them nothing
// changed.
type scraped struct {
	Endpoint string       `json:"endpoint"`
	Source   int          `json:"source"`
	Page     []family     `json:"page"`
	Changes  [][2]float64 `json:"changes"` // place among all samples, new value
	Odd      [][2]string  `json:"odd"`     // the same, of values that JSON has no number for
	Error    *string      `json:"error"`
}

type family struct {
	Name    string   `json:"name"`
	Typed   bool     `json:"typed"`
	Samples []sample `json:"samples"`
}

type sample struct {
	Labels    [][2]string `json:"labels"`
	Value     any         `json:"value"` // a number, or the text of one that JSON does not have
	Timestamp int64       `json:"timestamp"`
}

// lastPage is the page that the log had last of an endpoint and source. The
// order of its families is that of their names.
type lastPage struct {
	known    bool
	names    []string
	families []metrics.Family // with memory of their own
}

type pageKey struct {
	target string
	source int
}

// same says whether a page has the same samples as this one, whatever their
// values.
func (l *lastPage) same(p metrics.Page) bool {
	if !l.known || len(p) != len(l.names) {
		return false
	}
	for i, name := range l.names {
		f, was := p[name], &l.families[i]
		if f == nil || f.Typed != was.Typed || len(f.Samples) != len(was.Samples) {
			return false
		}
		for j := range f.Samples {
			a, b := &f.Samples[j], &was.Samples[j]
			if a.Timestamp != b.Timestamp || !slices.Equal(a.Labels, b.Labels) {
				return false
			}
		}
	}
	return true
}

// keep copies a page.
func (l *lastPage) keep(p metrics.Page) {
	l.known, l.names, l.families = true, slices.Sorted(maps.Keys(p)), nil
	for _, name := range l.names {
		f := metrics.Family{Typed: p[name].Typed, Samples: slices.Clone(p[name].Samples)}
		for i := range f.Samples {
			f.Samples[i].Labels = slices.Clone(f.Samples[i].Labels)
		}
		l.families = append(l.families, f)
	}
}

func (l *Log) appendScraped(b []byte, x *epp.Scraped) []byte {
	b = append(field(b, "scraped"), '{')
	b = appendText(b, "endpoint", x.Target.ID())
	b = appendInt(b, "source", x.Source)
	if x.Err != nil {
		b = openai.AppendString(field(b, "error"), x.Err.Error())
		return append(b, '}')
	}
	key := pageKey{x.Target.ID(), x.Source}
	last := l.pages[key]
	if last == nil || !last.same(x.Page) {
		if last == nil {
			last = &lastPage{}
			l.pages[key] = last
		}
		last.keep(x.Page)
		return append(last.appendWhole(b), '}')
	}
	place, changes, odd := 0, 0, 0
	for i, name := range last.names {
		was := last.families[i].Samples
		for j, s := range x.Page[name].Samples {
			if math.Float64bits(s.Value) != math.Float64bits(was[j].Value) {
				was[j].Value = s.Value
				if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
					odd++
				} else {
					changes++
					if changes == 1 {
						b = append(field(b, "changes"), '[')
					} else {
						b = append(b, ',')
					}
					b = strconv.AppendInt(append(b, '['), int64(place), 10)
					b = appendFloat(append(b, ','), s.Value)
					b = append(b, ']')
				}
			}
			place++
		}
	}
	if changes > 0 {
		b = append(b, ']')
	}
	if odd > 0 { // all of those that are odd now
		b = append(field(b, "odd"), '[')
		place, first := 0, true
		for i := range last.families {
			for _, s := range last.families[i].Samples {
				if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
					if !first {
						b = append(b, ',')
					}
					first = false
					b = strconv.AppendInt(append(b, '[', '"'), int64(place), 10)
					b = appendFloat(append(b, '"', ','), s.Value)
					b = append(b, ']')
				}
				place++
			}
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func (l *lastPage) appendWhole(b []byte) []byte {
	b = append(field(b, "page"), '[')
	for i, name := range l.names {
		f := &l.families[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendText(b, "name", name)
		b = appendTrue(b, "typed", f.Typed)
		b = append(field(b, "samples"), '[')
		for j := range f.Samples {
			s := &f.Samples[j]
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, '{')
			if len(s.Labels) > 0 {
				b = append(field(b, "labels"), '[')
				for k, label := range s.Labels {
					if k > 0 {
						b = append(b, ',')
					}
					b = openai.AppendString(append(b, '['), label.Name)
					b = openai.AppendString(append(b, ','), label.Value)
					b = append(b, ']')
				}
				b = append(b, ']')
			}
			b = appendFloat(field(b, "value"), s.Value)
			b = appendInt(b, "timestamp", s.Timestamp)
			b = append(b, '}')
		}
		b = append(b, ']', '}')
	}
	return append(b, ']')
}

// page is the page that a scrape brought, as it is told by differences from the
// last one.
func (l *lastPage) page(x *scraped) (metrics.Page, error) {
	if x.Page != nil {
		l.known, l.names, l.families = true, nil, nil
		for _, f := range x.Page {
			y := metrics.Family{Typed: f.Typed}
			for _, s := range f.Samples {
				v, err := number(s.Value)
				if err != nil {
					return nil, err
				}
				z := metrics.Sample{Value: v, Timestamp: s.Timestamp}
				for _, label := range s.Labels {
					z.Labels = append(z.Labels, metrics.Label{Name: label[0], Value: label[1]})
				}
				y.Samples = append(y.Samples, z)
			}
			l.names, l.families = append(l.names, f.Name), append(l.families, y)
		}
	} else if !l.known {
		return nil, errors.New("differences from a page that is not there")
	}
	for _, c := range x.Changes {
		if s := l.at(int(c[0])); s != nil {
			s.Value = c[1]
		}
	}
	for _, c := range x.Odd {
		place, err := strconv.Atoi(c[0])
		if err != nil {
			return nil, err
		}
		if s := l.at(place); s != nil {
			if s.Value, err = number(c[1]); err != nil {
				return nil, err
			}
		}
	}
	p := make(metrics.Page, len(l.names))
	for i, name := range l.names {
		p[name] = &l.families[i]
	}
	return p, nil
}

// at is the sample at a place among all.
func (l *lastPage) at(place int) *metrics.Sample {
	for i := range l.families {
		list := l.families[i].Samples
		if place >= 0 && place < len(list) {
			return &list[place]
		}
		place -= len(list)
	}
	return nil
}

func number(v any) (float64, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case string:
		return strconv.ParseFloat(v, 64)
	}
	return 0, fmt.Errorf("a sample's value is %v", v)
}
