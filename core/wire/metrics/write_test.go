package metrics_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// gauge writes a family with a single gauge.
func gauge(w metrics.Writer, name string, value float64) {
	if w.Family(name, "gauge", "") {
		w.Sample(value)
	}
}

// both writes to a text and to a collector.
type both []metrics.Writer

func (b both) Labels(labels ...metrics.Label) {
	for _, w := range b {
		w.Labels(labels...)
	}
}

func (b both) Family(name, kind, help string) (wanted bool) {
	for _, w := range b {
		wanted = w.Family(name, kind, help) || wanted
	}
	return wanted
}

func (b both) Sample(v float64, labels ...metrics.Label) {
	for _, w := range b {
		w.Sample(v, labels...)
	}
}

func (b both) Histogram(bounds []float64, counts []uint64, sum float64) {
	for _, w := range b {
		w.Histogram(bounds, counts, sum)
	}
}

// A Collector keeps the same samples as Parse reads from the text of the same families, with any labels and values.
func TestCollectedAsParsed(t *testing.T) {
	t.Parallel()
	names := []string{"vllm:a", "vllm:b_total", "c", "c_sum_total", "d"}
	rapid.Check(t, func(t *rapid.T) {
		wanted := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "wanted")
		want := func(name string) bool { return slices.Contains(wanted, name) }
		wantSeries := func(name string) bool {
			base, bucket := strings.CutSuffix(name, "_bucket")
			return want(name) || bucket && want(base) || strings.HasSuffix(name, "_sum")
		}
		text, collected := &metrics.Text{}, metrics.NewCollector(want)
		series := metrics.NewSeriesCollector(wantSeries)
		w := both{text, collected, series}
		label := func(name string) metrics.Label {
			return metrics.Label{Name: name,
				Value: rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a\\b\"c\nd", "\xff", ""})).Draw(t,
					"value")}
		}
		for _, name := range names {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				w.Labels(label("model_name"), label("engine"))
			case 1:
				w.Labels()
			}
			if rapid.Bool().Draw(t, "histogram") {
				bounds := []float64{0.001, 0.5, 1, 1e6}[:rapid.IntRange(0, 4).Draw(t, "bounds")]
				counts := rapid.SliceOfN(rapid.Uint64Max(1<<40), len(bounds)+1, len(bounds)+1).Draw(t, "counts")
				w.Family(name, "histogram", "Help.")
				w.Histogram(bounds, counts, rapid.Float64Range(-1e9, 1e9).Draw(t, "sum"))
				continue
			}
			w.Family(name, rapid.SampledFrom([]string{"gauge", "counter"}).Draw(t, "kind"), "Help.")
			for range rapid.IntRange(1, 3).Draw(t, "samples") {
				v := rapid.Float64Range(-1e18, 1e18).Draw(t, "value")
				if rapid.Bool().Draw(t, "labelled") {
					w.Sample(v, label("x"), label("y"))
				} else {
					w.Sample(v)
				}
			}
		}
		parsed, err := metrics.Parse(text.Page, want)
		if err != nil {
			t.Fatalf("%v\n%s", err, text.Page)
		}
		if d := cmp.Diff(parsed, collected.Take(), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("parsed (-) and collected (+) differ: %s\n%s", d, text.Page)
		}
		if parsed, err = metrics.ParseSeries(text.Page, wantSeries); err != nil {
			t.Fatalf("%v\n%s", err, text.Page)
		}
		got := series.Take()
		maps.DeleteFunc(got, func(_ string, f *metrics.Family) bool { return len(f.Samples) == 0 })
		sortLabels := cmpopts.SortSlices(func(a, b metrics.Label) bool { return a.Name < b.Name })
		if d := cmp.Diff(parsed, got, cmpopts.EquateEmpty(), sortLabels); d != "" {
			t.Fatalf("parsed (-) and collected (+) series differ: %s\n%s", d, text.Page)
		}
	})
}

// Labels are written as Prometheus' own library writes them.
func TestLabelsLikePrometheus(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("\\\"\n\ra{},=é")))).Draw(t,
			"value")
		var want bytes.Buffer
		family := &dto.MetricFamily{Name: new("x"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{
			Label: []*dto.LabelPair{{Name: new("l"), Value: new(strings.ToValidUTF8(value, "\ufffd"))}},
			Gauge: &dto.Gauge{Value: new(2.5)}}}}
		if _, err := expfmt.MetricFamilyToText(&want, family); err != nil {
			t.Fatal(err)
		}
		text := &metrics.Text{}
		text.Family("x", "gauge", "h")
		text.Sample(2.5, metrics.Label{Name: "l", Value: value})
		_, got, _ := bytes.Cut(text.Page, []byte("# TYPE"))
		_, wanted, _ := bytes.Cut(want.Bytes(), []byte("# TYPE"))
		if !bytes.Equal(got, wanted) {
			t.Fatalf("%q, expected %q", got, wanted)
		}
	})
}

// An unwanted family leaves nothing behind, nor do the calls for it.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	c := metrics.NewCollector(func(name string) bool { return name == "b" })
	if c.Family("a", "gauge", "") {
		t.Error("a is wanted")
	}
	c.Sample(1)
	c.Histogram([]float64{1}, []uint64{1, 2}, 3)
	gauge(c, "b", 4)
	page := c.Take()
	if got := slices.Collect(maps.Keys(page)); !slices.Equal(got, []string{"b"}) || len(page["b"].Samples) != 1 {
		t.Errorf("the page has %v", got)
	}
}

// A collector that is used again takes pages of other families, in another
// order, for what they are.
func TestCollectedAgain(t *testing.T) {
	t.Parallel()
	c := metrics.NewCollector(func(name string) bool { return name > "b" })
	for _, families := range [][]string{{"a", "b", "c"}, {"a", "b", "c"}, {"c", "a", "d", "b"}, {}, {"d"}} {
		var want []string
		for i, name := range families {
			gauge(c, name, float64(i))
			if name > "b" {
				want = append(want, name)
			}
		}
		if got := slices.Sorted(maps.Keys(c.Take())); !slices.Equal(got, want) {
			t.Errorf("of %v it took %v, expected %v", families, got, want)
		}
	}
}
