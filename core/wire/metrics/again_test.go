package metrics

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// alike compares what a reader says of a page with what Parse says.
func alike(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Reader, page string) {
	t.Helper()
	got, err := r.Read([]byte(page))
	want, wantErr := Parse([]byte(page), r.want)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("page %q\nRead:  %v\nParse: %v", page, err, wantErr)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); err == nil && diff != "" {
		t.Fatalf("page %q: (-Parse +Read)\n%s", page, diff)
	}
}

// Whatever pages came before, the next one reads as it would alone.
func TestPagesAgain(t *testing.T) {
	t.Parallel()
	numbers := rapid.SampledFrom(
		[]string{"0", "3", "12.0", "0.25", "1e3", "1.5e-07", "1.7e+09", "NaN", "+Inf", "-1", "1e999", "1.", ".5", "1e",
			"0x1", "1_0",
			"123456789012345678901234567890", "7 10", "7 x", "", " 5", "5 ", "1 2 3"})
	lines := rapid.SampledFrom(
		[]string{"# TYPE a gauge\n", "# TYPE h histogram\n", "# HELP a text 5\n", "a %s\n", "a{m=\"x\"} %s\n",
			"a{m=\"x 4\"} %s\n", "a{m=\"x\"}%s\n",
			"a\t%s\n", "a{m=\"}\"} %s\n", "b{m=\"y\"} %s\n", "h_bucket{le=\"1.0\"} %s\n", "h_count %s\n", "h %s\n",
			"b_sum %s\n", "{\"a\"} %s\n", "  a %s\n", "\n", "a %s"})
	rapid.Check(t, func(t *rapid.T) {
		r := NewReader(func(name string) bool { return name == "a" || name == "h" })
		shapes := rapid.SliceOfN(rapid.SliceOfN(lines, 0, 5), 1, 3).Draw(t, "shapes")
		for range 12 {
			page := ""
			for _, line := range rapid.SampledFrom(shapes).Draw(t, "shape") {
				if strings.Contains(line, "%s") {
					line = fmt.Sprintf(line, numbers.Draw(t, "number"))
				}
				page += line
			}
			alike(t, r, page)
		}
	})
}

func FuzzPagesAgain(f *testing.F) {
	f.Add("# TYPE a gauge\na{b=\"c\"} 1e3\nx 1\n", "# TYPE a gauge\na{b=\"c\"} 7\nx 2.5\n")
	f.Fuzz(func(t *testing.T, one, two string) {
		r := NewReader(func(name string) bool { return strings.HasPrefix(name, "a") })
		for _, page := range []string{one, two, one} {
			alike(t, r, page)
		}
	})
}

// One page of a vLLM server, as a picker reads it for each endpoint twenty
// times a second: whole, and when only numbers changed;
// beside the parser of the real one.
func BenchmarkPage(b *testing.B) {
	page, err := os.ReadFile("testdata/vllm.prom")
	if err != nil {
		b.Fatal(err)
	}
	want := func(name string) bool {
		return slices.Contains([]string{"vllm:num_requests_waiting", "vllm:num_requests_running",
			"vllm:kv_cache_usage_perc", "vllm:lora_requests_info", "vllm:cache_config_info"}, name)
	}
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Parse(page, want); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		r := NewReader(want)
		for b.Loop() {
			if _, err := r.Read(page); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("expfmt", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		p := expfmt.NewTextParser(model.LegacyValidation)
		for b.Loop() {
			if _, err := p.TextToMetricFamilies(bytes.NewReader(page)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
