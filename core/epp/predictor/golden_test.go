package predictor

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Predictions are the library's to the last bit, from requests on: all 13 and 9
// columns, pod types as categories and as missing values, models of the mean, and
// models of a quantile for requests that wait and for others.
func TestPredictsAsTheLibrary(t *testing.T) {
	for _, name := range []string{"mean", "quantile-gated"} {
		t.Run(name, func(t *testing.T) {
			zipped, err := os.ReadFile(filepath.Join("testdata", name+".model.json.gz"))
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
			m, err := Load(text)
			if err != nil {
				t.Fatal(err)
			}
			if want := name == "quantile-gated"; m.Gated() != want || len(m.trees[0].Features) != 13 ||
				len(m.trees[1].Features) != 9 {
				t.Fatalf("gated %v, columns %v and %v", m.Gated(), m.trees[0].Features, m.trees[1].Features)
			}
			lines, err := os.ReadFile(filepath.Join("testdata", name+".answers"))
			if err != nil {
				t.Fatal(err)
			}
			var rows []Features
			var want []Prediction
			seen := map[string]int{}
			for line := range strings.Lines(string(lines)) {
				at := strings.LastIndexByte(line, '}') + 1
				var f Features
				var bits [2]uint32
				if err := json.Unmarshal([]byte(line[:at]), &f); err != nil {
					t.Fatal(err)
				}
				if _, err := fmt.Sscanf(line[at:], "%x %x", &bits[0], &bits[1]); err != nil {
					t.Fatal(err)
				}
				rows, want = append(rows, f),
					append(want, Prediction{float64(math.Float32frombits(bits[0])),
						float64(math.Float32frombits(bits[1]))})
				seen[f.PodType]++
			}
			if len(rows) != 300 || seen["H100"] == 0 || seen["unknown"] == 0 {
				t.Fatalf("%d rows of %v", len(rows), seen)
			}
			var p Predictor
			for i, got := range p.Predict(m, rows, nil) {
				if got != want[i] {
					t.Errorf("%+v: %v; the library says %v", rows[i], got, want[i])
				}
			}
		})
	}
}
