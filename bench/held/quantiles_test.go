package held

import (
	"math"
	"net/http"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// processingName is a watch's metric: the time from a request's last bytes at a picker's socket to the first bytes of
// its answer there.
const processingName = "llm_d_epp_request_processing_duration_seconds"

// times counts durations by the upper bounds (in seconds) of a native histogram's buckets, which are at most 5 %
// wide.
type times map[float64]int64

// processing reads a watch's metric. It requests protobuf, because only that format has the fine buckets.
func processing(b *testing.B, metrics string) times {
	b.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+metrics+"/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	dec := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err != nil {
			b.Fatalf("no %s: %v", processingName, err)
		}
		if f.GetName() == processingName {
			return native(f.Metric[0].Histogram)
		}
	}
}

func native(h *dto.Histogram) times {
	out := times{0: int64(h.GetZeroCount())}
	base := math.Exp2(math.Exp2(-float64(h.GetSchema())))
	i, n, d := int32(0), int64(0), 0
	for _, s := range h.GetPositiveSpan() {
		i += s.GetOffset()
		for range s.GetLength() {
			n += h.GetPositiveDelta()[d]
			out[math.Pow(base, float64(i))] += n
			i++
			d++
		}
	}
	return out
}

// less returns the times since was.
func (t times) less(was times) times {
	out := times{}
	for at, n := range t {
		out[at] = n - was[at]
	}
	return out
}

func (t times) add(u times) {
	for at, n := range u {
		t[at] += n
	}
}

// quantile returns the bound that a fraction of the times does not exceed, in seconds.
func (t times) quantile(q float64) float64 {
	bounds := make([]float64, 0, len(t))
	total := int64(0)
	for at, n := range t {
		bounds = append(bounds, at)
		total += n
	}
	slices.Sort(bounds)
	seen := int64(0)
	for _, at := range bounds {
		if seen += t[at]; float64(seen) >= q*float64(total) {
			return at
		}
	}
	return math.NaN()
}

// within returns the percentage of times of at most so many seconds.
func (t times) within(seconds float64) float64 {
	in, total := int64(0), int64(0)
	for at, n := range t {
		total += n
		if at <= seconds*1.001 {
			in += n
		}
	}
	return 100 * float64(in) / float64(total)
}
