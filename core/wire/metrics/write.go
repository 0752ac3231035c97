package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Writer takes a page of metrics, family by family. The same calls serve two implementations: Text makes text of them,
// and Collector keeps the samples that its caller wants.
type Writer interface {
	// Labels sets labels that precede the own labels of every sample from now on.
	Labels(labels ...Label)
	// Family begins a family, with its name, its kind ("gauge", "counter", "histogram" or "summary") and its help text.
	// It returns false where the Writer does not want the family; further calls for the family then have no effect.
	Family(name, kind, help string) bool
	// Sample adds one sample to the family.
	Sample(value float64, labels ...Label)
	// Histogram adds the family's buckets: upper bounds, how many values lie in each bucket alone (the last one is
	// above all bounds), and the sum of all values.
	Histogram(bounds []float64, counts []uint64, sum float64)
	// Summary adds the family's count and sum. It has no quantiles.
	Summary(count uint64, sum float64)
}

// Text writes the Prometheus text format. Its zero value is an empty page.
type Text struct {
	// Page is the text so far. Its initial value may have capacity to reuse.
	Page []byte
	// Created, if above 0, adds a gauge (NAME_created) after every family that counts, as Python's client does: the
	// time at which it began to count, in seconds since 1970.
	Created float64

	name, help string
	counts     bool   // the family counts, and Created is above 0
	labels     []byte // for every sample
	bucket     []byte // scratch
	created    []byte // the lines of NAME_created, until the family ends
}

// Labels implements Writer.
func (t *Text) Labels(labels ...Label) { t.labels = appendLabels(t.labels[:0], labels) }

// Family implements Writer. It wants every family.
func (t *Text) Family(name, kind, help string) bool {
	t.End()
	t.name, t.help, t.counts = name, help, t.Created > 0 && kind != "gauge"
	b := append(append(append(append(t.Page, "# HELP "...), name...), ' '), help...)
	b = append(append(append(append(b, "\n# TYPE "...), name...), ' '), kind...)
	t.Page = append(b, '\n')
	return true
}

// End ends the last family. Callers that set Created must call it.
func (t *Text) End() {
	if len(t.created) == 0 {
		return
	}
	name := createdName(t.name)
	b := append(append(append(append(t.Page, "# HELP "...), name...), ' '), t.help...)
	b = append(append(append(b, "\n# TYPE "...), name...), " gauge\n"...)
	t.Page, t.created = append(b, t.created...), t.created[:0]
}

func createdName(family string) string { return strings.TrimSuffix(family, "_total") + "_created" }

// Sample implements Writer.
func (t *Text) Sample(value float64, labels ...Label) {
	t.Page = t.sample(t.Page, t.name, "", value, labels)
	t.writeCreated(labels)
}

// writeCreated adds the line that says when a series of the family began.
func (t *Text) writeCreated(labels []Label) {
	if t.counts {
		t.created = t.sample(t.created, createdName(t.name), "", t.Created, labels)
	}
}

// sample appends a sample to b.
func (t *Text) sample(b []byte, name, suffix string, value float64, labels []Label) []byte {
	b = append(append(b, name...), suffix...)
	if len(t.labels)+len(labels) > 0 {
		b = append(append(b, '{'), t.labels...)
		if len(t.labels) > 0 && len(labels) > 0 {
			b = append(b, ',')
		}
		b = append(appendLabels(b, labels), '}')
	}
	return append(appendValue(append(b, ' '), value), '\n')
}

// Histogram implements Writer.
func (t *Text) Histogram(bounds []float64, counts []uint64, sum float64) {
	// The common beginning of all bucket lines is built once: a page has some hundred of them, and a pool's pages are
	// read many times a second.
	p := append(append(t.bucket[:0], t.name...), "_bucket{"...)
	if len(t.labels) > 0 {
		p = append(append(p, t.labels...), ',')
	}
	p = append(p, `le="`...)
	t.bucket = p
	b, total := t.Page, uint64(0)
	for i, c := range counts {
		total += c
		b = append(b, p...)
		if i < len(bounds) {
			b = appendValue(b, bounds[i])
		} else {
			b = append(b, "+Inf"...)
		}
		b = append(appendValue(append(b, `"} `...), float64(total)), '\n')
	}
	t.Page = b
	t.Summary(total, sum)
}

// Summary implements Writer.
func (t *Text) Summary(count uint64, sum float64) {
	t.Page = t.sample(t.Page, t.name, "_count", float64(count), nil)
	t.Page = t.sample(t.Page, t.name, "_sum", sum, nil)
	t.writeCreated(nil)
}

func appendLabels(b []byte, labels []Label) []byte {
	for i, l := range labels {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, l.Name...), `="`...)
		b = append(appendEscaped(b, text(l.Value)), '"')
	}
	return b
}

// text returns a label's value in valid UTF-8, which the format requires.
func text(value string) string { return strings.ToValidUTF8(value, "\ufffd") }

func appendEscaped(b []byte, value string) []byte {
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, c)
		}
	}
	return b
}

func appendValue(b []byte, v float64) []byte {
	if v == float64(int64(v)) && v < 1e15 && v > -1e15 {
		return append(strconv.AppendInt(b, int64(v), 10), '.', '0')
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// Collector keeps the samples of the wanted families. It makes the same Page as Parse does from the same families'
// text, but without the text. It may collect one page after another.
type Collector struct {
	want   func(name string) bool
	page   Page
	labels []Label
	family *Family    // the current family; nil where it is not wanted
	series bool       // samples have their own names, as for ParseSeries
	parts  [3]*Family // with series: the parts of a histogram or summary, in the order of seriesSuffixes
	// suffixed maps the name of a histogram or summary to the names of these parts.
	suffixed map[string][3]string

	// asked has the results of want in the order of the families. Pages are alike, and most of their families are not
	// wanted.
	asked []answer
	next  int

	spare Page // memory of families for reuse; nil until Reuse
}

type answer struct {
	name   string
	wanted bool
}

// NewCollector returns a collector of the families for which want is true. It calls want once for each name.
func NewCollector(want func(name string) bool) *Collector {
	return &Collector{want: want, page: Page{}}
}

// NewSeriesCollector returns a collector that makes the same Page as ParseSeries does from the page's text.
func NewSeriesCollector(want func(name string) bool) *Collector {
	c := NewCollector(want)
	c.series = true
	return c
}

var seriesSuffixes = [3]string{"_bucket", "_sum", "_count"}

// Take returns the page written since the last Take.
func (c *Collector) Take() Page {
	p := c.page
	c.page, c.labels, c.family, c.next = Page{}, nil, nil, 0
	return p
}

// Reuse gives back the memory of a page that nothing uses any longer. The collector writes the next page into it.
func (c *Collector) Reuse(p Page) {
	if c.spare == nil {
		c.spare = Page{}
	}
	maps.Copy(c.spare, p)
	clear(p)
	c.page = p
}

func (c *Collector) wants(name string) bool {
	if c.next == len(c.asked) {
		c.asked = append(c.asked, answer{name, c.want(name)})
	} else if c.asked[c.next].name != name { // the page differs from the one before
		c.asked = append(c.asked[:c.next], answer{name, c.want(name)})
	}
	c.next++
	return c.asked[c.next-1].wanted
}

// Skips reports whether the page before this one had the family of a name in this place and the collector did not want
// it. It then counts as written. A caller of Skips need not look up the kind and the help text of such a family.
func (c *Collector) Skips(name string) bool {
	if c.next == len(c.asked) || c.asked[c.next].name != name || c.asked[c.next].wanted {
		return false
	}
	c.next, c.family = c.next+1, nil
	return true
}

// Labels implements Writer.
func (c *Collector) Labels(labels ...Label) {
	c.labels = nil // earlier samples refer to the old labels
	for _, l := range labels {
		c.labels = append(c.labels, Label{l.Name, text(l.Value)})
	}
}

// Family implements Writer.
func (c *Collector) Family(name, kind, _ string) bool {
	typed := kind != "histogram" && kind != "summary"
	if !c.series || typed {
		c.family = c.emptyFamily(name, typed)
		return c.family != nil
	}
	parts := c.suffixed[name]
	if parts[0] == "" {
		for i, suffix := range seriesSuffixes {
			parts[i] = name + suffix
		}
		if c.suffixed == nil {
			c.suffixed = map[string][3]string{}
		}
		c.suffixed[name] = parts
	}
	for i, part := range parts {
		c.parts[i] = c.emptyFamily(part, true)
	}
	return c.parts != [3]*Family{}
}

// emptyFamily returns the empty family of a name, or nil where it is not wanted.
func (c *Collector) emptyFamily(name string, typed bool) *Family {
	if !c.wants(name) {
		return nil
	}
	f := c.spare[name]
	if f == nil {
		f = new(Family)
	}
	*f = Family{Typed: typed, Samples: f.Samples[:0]}
	c.page[name] = f
	return f
}

// Sample implements Writer.
func (c *Collector) Sample(value float64, labels ...Label) {
	if c.family == nil {
		return
	}
	c.family.Samples = append(c.family.Samples, Sample{Labels: c.labelsOf(labels), Value: value})
}

// labelsOf returns the labels for the next sample. Where they equal those of the sample in the same place of the reused
// page, it returns these.
func (c *Collector) labelsOf(labels []Label) []Label {
	n := len(c.labels)
	if len(labels) == 0 {
		return c.labels[:n:n]
	}
	if all, at := c.family.Samples, len(c.family.Samples); at < cap(all) {
		if old := all[:at+1][at].Labels; len(old) == n+len(labels) && slices.Equal(old[:n], c.labels) &&
			slices.Equal(old[n:], labels) {
			return old
		}
	}
	out := append(make([]Label, 0, n+len(labels)), c.labels...)
	for _, l := range labels {
		out = append(out, Label{l.Name, text(l.Value)})
	}
	return out
}

// Histogram implements Writer.
func (c *Collector) Histogram(bounds []float64, counts []uint64, sum float64) {
	total := uint64(0)
	for i, n := range counts {
		total += n
		if !c.series {
			c.Sample(float64(total))
		} else if c.family = c.parts[0]; c.family != nil {
			le := "+Inf"
			if i < len(bounds) {
				le = string(appendValue(nil, bounds[i]))
			}
			c.Sample(float64(total), Label{"le", le})
		}
	}
	c.Summary(total, sum)
}

// Summary implements Writer.
func (c *Collector) Summary(count uint64, sum float64) {
	if c.series {
		c.family = c.parts[2]
	}
	c.Sample(float64(count))
	if c.series {
		c.family = c.parts[1]
	}
	c.Sample(sum)
}
