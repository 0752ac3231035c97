// Package metric is the table of an endpoint picker's metrics: names, older names, labels and buckets. core/epp
// computes their values, live/epp writes the page for Prometheus, and an autoscaler in virtual time reads them without
// a page. Begin with Family.
package metric

import "slices"

// Kind is the type of a family of metrics.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota
	Gauge        // grows and shrinks
	Last         // a gauge that holds the newest value
	Histogram
	Summary
)

// Family is one metric under today's name and, where it has one, under the older name that dashboards still read.
type Family struct {
	Kind      Kind
	Name, Old string
	Help      string
	Labels    []string
	// OldLabels are the labels under the older name: some of Labels, or the same number with other names.
	OldLabels []string
	// Buckets are the upper bounds of a histogram's buckets.
	Buckets []float64
	// Native adds native buckets to a histogram, for readers that ask in protobuf.
	Native bool
	// Always gives the family a series before anything is counted.
	Always bool
	// Number is the family's index in Kept; -1 for one that is computed when a page is read.
	Number int
}

// Native buckets differ by at most 5 %, and a histogram has at most this many.
const (
	NativeFactor  = 1.05
	NativeBuckets = 400
)

// Quantiles are a summary's quantiles and their errors.
var Quantiles = map[float64]float64{.5: .05, .9: .01, .99: .001}

// Kept are the families that grow with each event, by Number.
var Kept []*Family

// Older returns, for each of OldLabels, its index in Labels.
func (f *Family) Older() []int {
	at := make([]int, len(f.OldLabels))
	for i, name := range f.OldLabels {
		if at[i] = i; len(f.OldLabels) != len(f.Labels) {
			at[i] = slices.Index(f.Labels, name)
		}
	}
	return at
}

// Series returns the names of the family's series on a page.
func (f *Family) Series() []string {
	if f.Kind != Histogram {
		return []string{f.Name}
	}
	return []string{f.Name + "_bucket", f.Name + "_sum", f.Name + "_count"}
}

func keep(f Family) *Family {
	f.Number = len(Kept)
	Kept = append(Kept, &f)
	return &f
}

// today returns a family under the real picker's name and perhaps an older one, with the same labels for nil.
func today(kind Kind, name, help, old string, labels, oldLabels []string) Family {
	if oldLabels == nil {
		oldLabels = labels
	}
	return Family{Kind: kind, Name: prefix + name, Old: old, Help: "[ALPHA] " + help, Labels: labels,
		OldLabels: oldLabels}
}

func counter(name, help, old string, labels, oldLabels []string) *Family {
	return keep(today(Counter, name, help, old, labels, oldLabels))
}

func gauge(name, help, old string, labels, oldLabels []string) *Family {
	return keep(today(Gauge, name, help, old, labels, oldLabels))
}

func histogram(name, help, old string, buckets []float64, labels, oldLabels []string) *Family {
	f := today(Histogram, name, help, old, labels, oldLabels)
	f.Buckets = buckets
	return keep(f)
}

// plain returns a family that counts under one name.
func plain(kind Kind, name, help string, buckets []float64, labels ...string) *Family {
	return keep(Family{Kind: kind, Name: name, Help: help, Buckets: buckets, Labels: labels, Always: len(labels) == 0})
}

// read returns a gauge that is computed when a page is read.
func read(name, help, old string, labels ...string) *Family {
	f := today(Gauge, name, help, old, labels, nil)
	f.Number = -1
	return &f
}

// renamed gives a family of read other labels under the older name.
func renamed(f *Family, oldLabels ...string) *Family {
	f.OldLabels = oldLabels
	return f
}

// asked returns a family under one name that is computed when a page is read.
func asked(kind Kind, name, help string, labels ...string) *Family {
	return &Family{Kind: kind, Name: name, Help: help, Labels: labels, Number: -1}
}
