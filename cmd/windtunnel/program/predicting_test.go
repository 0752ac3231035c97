package program

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/predictor"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// library is a Python with XGBoost. In CI, and where WINDTUNNEL_TEST_XGBOOST is set, it
// is installed if there is none; elsewhere the test is skipped then.
func library(t *testing.T) predictor.Library {
	t.Helper()
	install := os.Getenv("CI") == "true" || os.Getenv("WINDTUNNEL_TEST_XGBOOST") != ""
	lib, err := predictor.Find(t.Context(), predictor.FindOptions{NoInstall: !install})
	switch {
	case err != nil && install:
		t.Fatal(err)
	case err != nil:
		t.Skipf("predictions of trees that are fitted here were not tested: %v", err)
	}
	return lib
}

// steady plays so many requests of examples/slo-steady.yaml in virtual time, with trees
// of the library.
func steady(t *testing.T, lib predictor.Library, requests int, rec record.Recorder) {
	t.Helper()
	s, err := scenario.Load(filepath.Join(repository, "examples", "slo-steady.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.Workload.Requests = requests
	tr := &predictor.Trainer{Library: lib}
	defer tr.Close()
	fit := func(f core.Fit) core.Fitted {
		out := tr.Fit(context.Background(), f)
		if out.Err != nil {
			t.Error(out.Err)
		}
		return out
	}
	if _, err := virtual.Play(s, rec, virtual.Options{Fit: fit}); err != nil {
		t.Fatal(err)
	}
}

// Once it has learned, predictions of four servers under steady traffic are off by at
// most 10 % (first token) and 5 % (each further one), in the median.
func TestPredictionsAreGood(t *testing.T) {
	t.Parallel()
	lib := library(t)
	const from, to = 2001, 4000
	late := map[string]bool{}
	for n := from; n <= to; n++ {
		late[record.RequestID(1, n)] = true
	}
	off := map[string][]float64{}
	steady(t, lib, to, record.Func(func(e record.Event) {
		if e.Step != record.PredictionChecked || !late[e.Request] {
			return
		}
		for _, name := range []string{"ttft_ms", "tpot_ms"} {
			was, observed := e.Details.Get(name).(float64)
			is, predicted := e.Details.Get("predicted_" + name).(float64)
			if observed && predicted {
				off[name] = append(off[name], math.Abs(is-was)/was)
			}
		}
	}))
	for name, most := range map[string]float64{"ttft_ms": .10, "tpot_ms": .05} {
		slices.Sort(off[name])
		if n := len(off[name]); n != to-from+1 {
			t.Errorf("%s: %d requests of %d had a prediction", name, n, to-from+1)
		} else if median := off[name][n/2]; median > most {
			t.Errorf("%s: off by %.1f%% in the median; expected at most %.0f%%", name, 100*median, 100*most)
		}
	}
}

// The same seed and library give the same run, from one process of the library to
// another.
func TestTrainingRepeats(t *testing.T) {
	t.Parallel()
	lib := library(t)
	play := func() (trained int, sum [sha256.Size]byte) {
		h := sha256.New()
		w := json.NewEncoder(h)
		steady(t, lib, 1000, record.Func(func(e record.Event) {
			if e.Step == record.PredictorTrained {
				trained++
			}
			if err := w.Encode(e); err != nil {
				t.Error(err)
			}
		}))
		h.Sum(sum[:0])
		return trained, sum
	}
	n, a := play()
	m, b := play()
	if n < 2 || n != m || a != b {
		t.Errorf("%d and %d trainings, %x and %x; expected at least 2, and the same", n, m, a, b)
	}
}
