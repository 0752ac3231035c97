package program

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

// troubled are examples in which something goes wrong on purpose, with the leaf that explains it; "" for those whose
// incidents no leaf names, or that have servers of another party.
var troubled = map[string]diagnose.Leaf{"faults": "", "incidents": "", "pools": "", "slo-drift": "",
	"own-model-servers": "", "classes": diagnose.MoreGPUs, "slo-mixed-queue": diagnose.MoreGPUs}

// atLimit are examples with the highest rate that keeps their limits. With other seeds some miss them, because the
// accelerators are busy, and diagnose names that.
var atLimit = []string{"pd-apart", "pd-mixed"}

// Diagnose finds nothing in healthy runs: all examples in which nothing goes wrong, by day some of them with their own
// seed, at night all with 50 seeds, or 5. With another seed than its own, an example may miss a limit that it sets
// itself.
func TestDiagnoseFindsNothingInHealthyRuns(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(repository, "examples", "*.yaml"))
	if err != nil || len(names) < 20 {
		t.Fatal(names, err)
	}
	seeds := 1
	if nightly.On() {
		seeds = 50
	}
	for i, name := range names {
		short := strings.TrimSuffix(filepath.Base(name), ".yaml")
		if _, trouble := troubled[short]; trouble || !nightly.Each(i, 5) {
			continue
		}
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			v, err := search.ReadVariant(nil, name, nil, scenario.Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := v.Scenario(0)
			if err != nil {
				t.Fatal(err)
			}
			seeds := seeds
			switch {
			case slices.Contains(atLimit, short):
				seeds = 1
			case strings.HasPrefix(short, "slo-"): // each run fits trees for seconds
				seeds = min(seeds, 5)
			}
			for seed := s.Seed; seed < s.Seed+uint64(seeds); seed++ {
				v.Overrides.Seed = &seed
				d, err := player(testOutside(&bytes.Buffer{})).Diagnose(t.Context(), &v, false)
				if err != nil {
					t.Fatal(err)
				}
				if len(d.Findings) > 0 || seed == s.Seed && len(d.Symptoms) > 0 {
					t.Errorf("seed %d: found %v, %+v", seed, d.Symptoms, d.Findings)
				}
			}
		})
	}
}

// The command reads a Prometheus that answers like the real one, and names what it found.
func TestDiagnoseOfPrometheus(t *testing.T) {
	values := map[string]string{
		"sum(increase(llm_d_epp_request_total[900s])) or": `{"metric":{},"value":[1,"2000"]}`,
		"(sum(rate(llm_d_epp_request_error_total":         `{"metric":{},"value":[1,"0.25"]}`,
		"sum(increase(vllm:nixl_num_kv_expired_reqs":      `{"metric":{},"value":[1,"500"]}`,
		"avg_over_time(vllm:num_requests_waiting":         `{"metric":{"pod":"decode-0"},"value":[1,"3"]}`,
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := ""
		for begin, v := range values {
			if strings.HasPrefix(r.URL.Query().Get("query"), begin) {
				found = v
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, found)
	}))
	defer h.Close()
	var out bytes.Buffer
	if code := run([]string{"diagnose", "--prometheus", h.URL}, testOutside(&out)); code != 1 ||
		!strings.HasPrefix(out.String(), "prefiller-forgot (certain)\n") ||
		!strings.Contains(out.String(), "evidence  500 times: ") ||
		!strings.Contains(out.String(), "queue 3 requests (decode-0, in the 15m0s to ") {
		t.Errorf("exit code %d:\n%s", code, &out)
	}
	clear(values)
	out.Reset()
	if code := run([]string{"diagnose", "--prometheus", h.URL}, testOutside(&out)); code != 5 ||
		!strings.Contains(out.String(), "it has no metric of vLLM, llm-d or document 003") {
		t.Errorf("without metrics: exit code %d:\n%s", code, &out)
	}
}

// docs/diagnose.md has every leaf with its cause, its first remedy and its line.
func TestDiagnosePageHasEveryLeaf(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "docs", "diagnose.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range diagnose.Causes() {
		_, line, _ := strings.Cut(c.Source, ", line ")
		row := fmt.Sprintf("| `%s` | %s | %s |", c.Leaf, c.Text, strings.Join(c.Remedies, "; "))
		if !strings.Contains(string(page), row) || !strings.Contains(string(page), ": "+line+" |") {
			t.Errorf("docs/diagnose.md lacks the row %s with line %s", row, line)
		}
	}
}
