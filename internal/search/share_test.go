package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/scenario"
)

// queueFile writes the scenario of one queue, and returns it.
func queueFile(t *testing.T) Variant {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte(oneQueue), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := ReadVariant(nil, file, nil, scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// written returns a result in all its forms.
func written(t *testing.T, forms ...func(*bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	for _, write := range forms {
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// numRows returns the number of rows of a Parquet file.
func numRows(t *testing.T, path string) int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	return f.NumRows()
}

// The shares of a sweep together give the table of one process, to the byte, and each plays its combinations only. A
// share that is missing is reported, and a later process plays it.
func TestSharesOfASweep(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	sweep := func(d Division) (*Swept, error) {
		return new(Player).Sweep(context.Background(), Sweep{Variant: queueFile(t), Replications: 2, Division: d,
			Vary: []string{"workload.rate=2,3,4,5", "workload.requests=50"}, Note: func(string) {}})
	}
	forms := func(x *Swept) string {
		return written(t, func(b *bytes.Buffer) error { return x.Write(b, "text", 100) },
			func(b *bytes.Buffer) error { return x.Write(b, "csv", 0) })
	}
	alone, err := sweep(Division{})
	if err != nil {
		t.Fatal(err)
	}
	want := forms(alone)
	for i := range 6 { // two of them have nothing to play
		x, err := sweep(Division{Results: dir, Share: Share{i, 6}})
		if err != nil || len(x.points) != max(0, min(1, 4-i)) {
			t.Fatalf("share %d: %+v, %v; expected one combination in each of the first four", i, x, err)
		}
	}
	if x, err := sweep(Division{Results: dir, Collect: true}); err != nil || forms(x) != want {
		t.Fatalf("%v; collected:\n%s\nexpected:\n%s", err, forms(x), want)
	}
	if n := numRows(t, filepath.Join(dir, "share-1-of-6.parquet")); n != int64(len(alone.points[1].Measures)) {
		t.Errorf("%d rows in Parquet; expected %d", n, len(alone.points[1].Measures))
	}
	if err := os.Remove(filepath.Join(dir, "share-1-of-6.ndjson")); err != nil {
		t.Fatal(err)
	}
	if x, err := sweep(Division{Results: dir, Collect: true}); err == nil || len(x.points) != 3 ||
		!strings.Contains(err.Error(), "1 of 4 combinations are not in ") {
		t.Errorf("%v; expected a missing combination", err)
	}
	if x, err := sweep(Division{Results: dir}); err != nil || forms(x) != want {
		t.Errorf("%v; expected the missing combination to be played", err)
	}
}

// Processes that search together give the answer of one, to the byte, and play each run once. A process that comes
// after the answer plays nothing.
func TestSharesOfACapacitySearch(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	v := queueFile(t)
	options := func(d Division) CapacityOptions {
		return CapacityOptions{Variant: v, Division: d, Find: FindRate, Objectives: []string{"ttft.mean=401ms"},
			Duration: 10 * time.Second, Precision: 20, Replications: 3, MaxReplicas: 1}
	}
	search := func(d Division) (*Capacity, error) {
		return new(Player).Capacity(context.Background(), options(d))
	}
	forms := func(x *Capacity) string {
		return written(t, func(b *bytes.Buffer) error { return x.Write(b, 100) },
			func(b *bytes.Buffer) error { return json.NewEncoder(b).Encode(x) })
	}
	alone, err := search(Division{})
	if err != nil {
		t.Fatal(err)
	}
	want := forms(alone)
	if _, err := search(Division{Results: dir, Collect: true}); err == nil {
		t.Error("an empty directory has an answer")
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			x, err := search(Division{Results: dir, Share: Share{i, 4}})
			if err != nil || forms(x) != want {
				t.Errorf("share %d: %v; found another answer than one process", i, err)
			}
		})
	}
	wg.Wait()
	late := new(Player)
	late.Progress = func(string, int, int) { t.Error("a process that comes after the answer plays a run") }
	if x, err := late.Capacity(context.Background(), options(Division{Results: dir, Share: Share{3, 4}})); err != nil ||
		forms(x) != want {
		t.Errorf("%v, %v; expected the answer", x, err)
	}
	answer, err := filepath.Glob(filepath.Join(dir, "answer-*.json"))
	if err != nil || len(answer) != 1 {
		t.Fatal(answer, err)
	}
	text, err := os.ReadFile(answer[0])
	if err != nil {
		t.Fatal(err)
	}
	single := filepath.Join(t.TempDir(), "one.json")
	for from, to := range map[string]string{alone.Key: "another", "measures": "others"} {
		if os.WriteFile(single, bytes.ReplaceAll(text, []byte(from), []byte(to)), 0o600) != nil {
			t.Fatal("no file")
		}
		if x, err := search(Division{Results: single, Collect: true}); err == nil {
			t.Errorf("%s for %s: %s; expected an error", to, from, x.Answer)
		}
	}
	if err := errors.Join(os.WriteFile(single, text, 0o600), os.Remove(answer[0])); err != nil {
		t.Fatal(err)
	}
	for _, results := range []string{single, dir} { // from the answer, and from the runs
		if x, err := search(Division{Results: results, Collect: true}); err != nil || forms(x) != want {
			t.Errorf("%v; collected:\n%s\nexpected:\n%s", err, forms(x), want)
		}
	}
	runs, _ := filepath.Glob(filepath.Join(dir, "run-*"))
	if len(runs) != alone.Runs {
		t.Errorf("found the files of %d runs; expected %d and no claims", len(runs), alone.Runs)
	}
	answers, _ := filepath.Glob(filepath.Join(dir, "answer-*.parquet"))
	if len(answers) != 1 || numRows(t, answers[0]) != int64(2*len(alone.Loads)) {
		t.Errorf("%v; expected one file with two measures of each load", answers)
	}
	for _, file := range runs[1:] {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := search(Division{Results: dir, Collect: true}); err == nil {
		t.Error("one run is an answer")
	}
	if err := os.WriteFile(runs[0], []byte("{}\n12"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := search(Division{Results: dir}); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("%v; expected the name of the broken file", err)
	}
}

// A run comes back from its file as it was, whatever its values.
func TestRunsInFiles(t *testing.T) {
	want := played{Run: Run{Values: [][]float64{{1.5, math.Inf(1), 0}, nil, {-2}}, Early: math.Inf(1), Late: 1e-300,
		Unsettled: true}, Servers: "2:4", Uses: []constraint.Use{{Where: "pool", Share: 0.1}}}
	want.Steps.Text = "±17 %"
	text, err := want.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var got played
	want.Values[1] = []float64{}
	if err := got.UnmarshalBinary(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; expected %+v", got, err, want)
	}
	for _, bad := range []string{"", "x\n", string(text[:len(text)-1]), string(text) + "12345678"} {
		if err := got.UnmarshalBinary([]byte(bad)); err == nil {
			t.Errorf("%d bytes are a run", len(bad))
		}
	}
}

// A run belongs to the process that claimed it, until it is played or the process stops renewing the claim. A process
// that starts again drops the claims of its share.
func TestClaims(t *testing.T) {
	dir := t.TempDir()
	at := func(share int) *Store { return (&Division{Results: dir, Share: Share{share, 2}}).Store() }
	once := func(s *Store) bool {
		done, err := s.Run("a", new(played), func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	path := filepath.Join(dir, "run-a.claim")
	killed, other := at(0), at(1)
	if claimed, err := killed.claim(path); !claimed || err != nil {
		t.Fatal(claimed, err)
	}
	for range 2 {
		if once(other) {
			t.Fatal("another process plays a run that is claimed")
		}
	}
	other.stale = 0
	if now := time.Now(); os.Chtimes(path, now, now.Add(time.Hour)) != nil || once(other) {
		t.Fatal("a process that renews its claim loses it")
	}
	if once(other) || !once(other) { // the claim is void, and then free
		t.Fatal("nobody plays the run of a process that was killed")
	}
	if err := os.WriteFile(path, []byte("0/2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{other, killed} {
		stop, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if _, err := os.Stat(path); (err == nil) != (s == other) {
			t.Errorf("share %s: %v; expected a process to drop the claims of its share alone", s.Share, err)
		}
	}
}

// Another model, which is no field that varies, is another point.
func TestKeysHaveSettings(t *testing.T) {
	v := queueFile(t)
	found := map[string]bool{}
	for _, tokens := range []string{"5", "6"} {
		w := v.With(scenario.Setting{Path: "pools[0].modelServer.outputTokens", Value: tokens})
		s, err := w.Scenario(0)
		if err != nil {
			t.Fatal(err)
		}
		key, err := new(Keys).Of(&w, s)
		if err != nil {
			t.Fatal(err)
		}
		found[key] = true
	}
	if len(found) != 2 {
		t.Errorf("found the keys %v; expected two", found)
	}
}

func TestShareText(t *testing.T) {
	for text, want := range map[string]Share{"0/1": {0, 1}, "63/64": {63, 64}} {
		var s Share
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "1", "1/1", "-1/2", "a/2", "0/0", "0/200000", "0/1/2"} {
		if err := new(Share).UnmarshalText([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("found %q; expected", text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
