package xgboost

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func golden(t testing.TB, name string) (*Model, []byte) {
	t.Helper()
	zipped, err := os.ReadFile(filepath.Join("testdata", name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return m, text
}

func rows(t testing.TB, name string) (out [][]float32) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".rows"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var row []float32
		for word := range strings.FieldsSeq(line) {
			var bits uint32
			if _, err := fmt.Sscanf(word, "%08x", &bits); err != nil {
				t.Fatal(err)
			}
			row = append(row, math.Float32frombits(bits))
		}
		out = append(out, row)
	}
	return out
}

// alone predicts one row.
func alone(m *Model, row []float32) float32 {
	out := make([]float32, 1)
	m.PredictAll(row, out)
	return out[0]
}

// The library's answers, to the last bit: also for missing values, for values on
// a threshold and for categories.
func TestPredictsAsTheLibrary(t *testing.T) {
	for _, name := range []string{"mean", "quantile", "categories", "stump"} {
		t.Run(name, func(t *testing.T) {
			m, _ := golden(t, name)
			var all, want []float32
			for i, row := range rows(t, name) {
				n := len(row) - 1
				all, want = append(all, row[:n]...), append(want, row[n])
				if got := alone(m, row[:n]); math.Float32bits(got) != math.Float32bits(row[n]) {
					t.Errorf("row %d: %v is %v; the library says %v", i, row[:n], got, row[n])
				}
			}
			got := make([]float32, len(want))
			m.PredictAll(all, got)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("row %d of all: %v; the library says %v", i, got[i], want[i])
				}
			}
		})
	}
}

func TestRefusesWhatIsNoModel(t *testing.T) {
	_, text := golden(t, "stump")
	for _, c := range []struct{ from, to, want string }{
		{`"left_children":[1,`, `"left_children":[0,`, "children 0 and 2"},
		{`"left_children":[1,`, `"left_children":[7,`, "children 7 and 2"},
		{`"right_children":[2,`, `"right_children":[-1,`, "children 1 and -1"},
		{`"name":"gbtree"`, `"name":"dart"`, `"dart"`},
		{`"name":"reg:squarederror"`, `"name":"multi:softmax"`, `"multi:softmax"`},
		{`"num_target":"1"`, `"num_target":"2"`, "several targets"},
		{`"num_feature":"7","num_target"`, `"num_feature":"0","num_target"`, "num_feature is 0"},
		{`"split_indices":[`, `"split_indices":[9,`, "split_indices"},
		{`"base_score":"[`, `"base_score":"[x`, "base_score"},
		{`{"learner"`, `["learner"`, "save_model"},
	} {
		broken := strings.Replace(string(text), c.from, c.to, 1)
		if broken == string(text) {
			t.Fatalf("%s is not in the model", c.from)
		}
		if _, err := Read([]byte(broken)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; expected %q", c.to, err, c.want)
		}
	}
	if _, err := Read(make([]byte, MaxBytes+1)); err == nil {
		t.Error("a model beyond all limits was read")
	}
}

// Whatever is read has an answer for every row.
func FuzzRead(f *testing.F) {
	_, text := golden(f, "stump")
	f.Add(text, float32(1))
	f.Add([]byte(`{"learner":{"gradient_booster":{"name":"gbtree","model":{"trees":[{"left_children":[1,-1,-1],`+
		`"right_children":[2,-1,-1],"split_indices":[0,0,0],`+
		`"split_conditions":[1e38,2,3],"default_left":[1,0,0],"split_type":[1,0,0],"categories":[1,2],`+
		`"categories_nodes":[0],"categories_segments":[0],"categories_sizes":[2]}]}},`+
		`"learner_model_param":{"base_score":"5E-1","num_feature":"1"},"objective":{"name":"reg:squarederror"}}}`),
		float32(2))
	f.Fuzz(func(t *testing.T, text []byte, x float32) {
		m, err := Read(text)
		if err != nil {
			return
		}
		row, other := make([]float32, m.Columns), make([]float32, m.Columns)
		for i := range row {
			row[i], other[i] = x, -x
		}
		both := make([]float32, 2)
		m.PredictAll(slices.Concat(row, other), both)
		for i, a := range []float32{alone(m, row), alone(m, other)} {
			if math.Float32bits(a) != math.Float32bits(both[i]) {
				t.Errorf("%v, and in a batch %v", a, both[i])
			}
		}
	})
}

func BenchmarkPredictAll(b *testing.B) {
	m, _ := golden(b, "mean")
	in := rows(b, "mean")
	var all []float32
	for i := range 16 {
		all = append(all, in[i][:m.Columns]...)
	}
	out := make([]float32, 16)
	for b.Loop() {
		m.PredictAll(all, out)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*16*m.Trees()), "ns/tree")
}
