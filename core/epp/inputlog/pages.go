package inputlog

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/metrics"
)

// scraped is what came of a scrape: a whole page, what changed since the last
// one of the same endpoint and source, or an error. Without any of them nothing
// changed.
type scraped struct {
	Endpoint string      `json:"endpoint,omitempty"`
	Source   int         `json:"source,omitempty"`
	Error    *string     `json:"error,omitempty"`
	Page     []family    `json:"page,omitzero"`
	Changes  []change    `json:"changes,omitempty"`
	Odd      []oddChange `json:"odd,omitempty"`
}

type family struct {
	Name    string   `json:"name,omitempty"`
	Typed   bool     `json:"typed,omitempty"`
	Samples []sample `json:"samples"`
}

type sample struct {
	Labels    pairs  `json:"labels,omitempty"`
	Value     number `json:"value"`
	Timestamp int64  `json:"timestamp,omitempty"`
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

// scraped returns what came of a scrape as the log has it, by what changed since the last one.
func (l *Log) scraped(m *epp.Scraped) *scraped {
	x := &scraped{Endpoint: m.Target.ID(), Source: m.Source}
	if m.Err != nil {
		text := m.Err.Error()
		x.Error = &text
		return x
	}
	key := pageKey{x.Endpoint, x.Source}
	last := l.pages[key]
	if last == nil {
		last = &lastPage{}
		l.pages[key] = last
	}
	if !last.same(m.Page) {
		last.keep(m.Page)
		x.Page = last.whole()
		return x
	}
	place, newlyOdd := 0, false
	for i, name := range last.names {
		was := last.families[i].Samples
		for j, s := range m.Page[name].Samples {
			changed := math.Float64bits(s.Value) != math.Float64bits(was[j].Value)
			c := change{number(place), number(s.Value)}
			if was[j].Value = s.Value; c[1].odd() { // all of those that are odd now
				x.Odd, newlyOdd = append(x.Odd, oddChange{c}), newlyOdd || changed
			} else if changed {
				x.Changes = append(x.Changes, c)
			}
			place++
		}
	}
	if !newlyOdd {
		x.Odd = nil
	}
	return x
}

// whole returns all of the page.
func (l *lastPage) whole() []family {
	out := make([]family, len(l.names))
	for i, name := range l.names {
		f := &l.families[i]
		out[i] = family{name, f.Typed, make([]sample, len(f.Samples))}
		for j, s := range f.Samples {
			x := &out[i].Samples[j]
			x.Value, x.Timestamp = number(s.Value), s.Timestamp
			for _, label := range s.Labels {
				x.Labels = append(x.Labels, [2]string{label.Name, label.Value})
			}
		}
	}
	return out
}

// page is the page that a scrape brought, as it is told by differences from the
// last one.
func (l *lastPage) page(x *scraped) (metrics.Page, error) {
	if x.Page != nil {
		*l = lastPage{known: true}
	} else if !l.known {
		return nil, errors.New("differences from a page that is not there")
	}
	for _, f := range x.Page {
		y := metrics.Family{Typed: f.Typed}
		for _, s := range f.Samples {
			z := metrics.Sample{Value: float64(s.Value), Timestamp: s.Timestamp}
			for _, label := range s.Labels {
				z.Labels = append(z.Labels, metrics.Label{Name: label[0], Value: label[1]})
			}
			y.Samples = append(y.Samples, z)
		}
		l.names, l.families = append(l.names, f.Name), append(l.families, y)
	}
	for _, c := range x.Changes {
		l.set(c)
	}
	for _, c := range x.Odd {
		l.set(c.change)
	}
	p := make(metrics.Page, len(l.names))
	for i, name := range l.names {
		p[name] = &l.families[i]
	}
	return p, nil
}

// set changes the sample at a place among all, if there is one.
func (l *lastPage) set(c change) {
	place := int(c[0])
	for i := range l.families {
		list := l.families[i].Samples
		if place >= 0 && place < len(list) {
			list[place].Value = float64(c[1])
			return
		}
		place -= len(list)
	}
}
