package inputlog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// scraped is the result of a scrape: a whole page, the changes since the last one of the same endpoint and source, or
// an error. Without any of them nothing changed.
type scraped struct {
	Endpoint string       `json:"endpoint"`
	Source   int          `json:"source"`
	Page     []family     `json:"page"`
	Changes  [][2]float64 `json:"changes"` // place among all samples, new value
	Odd      [][2]string  `json:"odd"`     // the same, of values that are no numbers in JSON
	Error    *string      `json:"error"`
}

type family struct {
	Name    string   `json:"name"`
	Typed   bool     `json:"typed"`
	Samples []sample `json:"samples"`
}

type sample struct {
	Labels    [][2]string `json:"labels"`
	Value     any         `json:"value"` // a number, or the text of NaN or an infinity
	Timestamp int64       `json:"timestamp"`
}

// lastPage is the last page of an endpoint and source in the log. Its families are in the order of their names.
type lastPage struct {
	known    bool
	names    []string
	families []metrics.Family // with memory of their own
}

type pageKey struct {
	target string
	source int
}

// same reports whether a page has the same samples as this one, whatever their values.
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
	b = object(b, "scraped")
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
	place, changes, odd := 0, false, false
	for i, name := range last.names {
		was := last.families[i].Samples
		for j, s := range x.Page[name].Samples {
			if math.Float64bits(s.Value) != math.Float64bits(was[j].Value) {
				if was[j].Value = s.Value; !plain(s.Value) {
					odd = true
				} else {
					if !changes {
						b, changes = append(field(b, "changes"), '['), true
					}
					b = strconv.AppendInt(append(comma(b), '['), int64(place), 10)
					b = append(appendFloat(append(b, ','), s.Value), ']')
				}
			}
			place++
		}
	}
	if changes {
		b = append(b, ']')
	}
	if odd {
		b = last.appendOdd(b)
	}
	return append(b, '}')
}

// plain reports whether a value is a number in JSON.
func plain(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// appendOdd writes all values that are no numbers in JSON, with their places.
func (l *lastPage) appendOdd(b []byte) []byte {
	b = append(field(b, "odd"), '[')
	place := 0
	for i := range l.families {
		for _, s := range l.families[i].Samples {
			if !plain(s.Value) {
				b = strconv.AppendInt(append(comma(b), '[', '"'), int64(place), 10)
				b = append(appendFloat(append(b, '"', ','), s.Value), ']')
			}
			place++
		}
	}
	return append(b, ']')
}

func (l *lastPage) appendWhole(b []byte) []byte {
	b = append(field(b, "page"), '[')
	for i, name := range l.names {
		f := &l.families[i]
		b = append(comma(b), '{')
		b = appendText(b, "name", name)
		b = appendTrue(b, "typed", f.Typed)
		b = append(field(b, "samples"), '[')
		for j := range f.Samples {
			s := &f.Samples[j]
			b = append(comma(b), '{')
			if len(s.Labels) > 0 {
				b = append(field(b, "labels"), '[')
				for _, label := range s.Labels {
					b = appendPair(b, header.Header(label))
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

// page returns the page of a scrape, from its differences to the last one.
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

// at returns the sample at a place among all, nil if there is none.
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
