package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/internal/tune"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/web"
)

// blind is a scenario whose picker ignores caches.
const blind = `apiVersion: windtunnel/v1alpha1
kind: Scenario
name: blind
pools:
  - name: chat
    model: llama-3.1-8b
    replicas: 4
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 4}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: prefix-cache-scorer}, {type: queue-scorer}]
        schedulingProfiles:
          - {name: default, plugins: [{pluginRef: prefix-cache-scorer, weight: 0}, {pluginRef: queue-scorer}]}
workload: {requests: 150, rate: 40, prompt: {characters: 400, shared: {groups: 25, characters: 24000}}}
`

// The page of a search has its points, and plays the run of each on a page of its own.
func TestTunePage(t *testing.T) {
	t.Parallel()
	out, code, stop := begun("tune", write(t, "given.yaml", blind), "-n", "20", "--runs", "5", "-r", "3", "--ui")
	defer stop()
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	described := func(at *url.URL) (m web.Meta) {
		for _, path := range []string{at.RequestURI(), "/data/meta"} {
			resp, err := browser.Get("http://" + at.Host + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if path == "/data/meta" && json.NewDecoder(resp.Body).Decode(&m) != nil {
				t.Fatalf("%s describes no run", at)
			}
		}
		return m
	}
	at := out.link(t, code)
	m := described(at)
	if m.Search == nil || len(m.Search.Points) < 3 || m.Search.Points[0].Of != "search" || len(m.Search.Knobs) != 2 ||
		m.Scenario != "blind, best 1" || m.Seed != 100001 {
		t.Fatalf("found the run %q of seed %d, and %+v", m.Scenario, m.Seed, m.Search)
	}
	for number, want := range map[int]string{0: "blind, search", len(m.Search.Points) - 2: "blind, today",
		len(m.Search.Points): "expected play with the number of a point"} {
		r, _ := http.NewRequest(http.MethodPost, "http://"+at.Host+"/data/do",
			strings.NewReader(fmt.Sprintf(`{"name": "play", "number": %d}`, number)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://"+at.Host)
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var done struct{ Result, Error string }
		if err := json.NewDecoder(resp.Body).Decode(&done); err != nil {
			t.Fatal(err)
		}
		found := done.Error
		if done.Result != "" {
			link, err := url.Parse(done.Result)
			if err != nil {
				t.Fatal(err)
			}
			found = described(link).Scenario
		}
		if !strings.Contains(found, want) {
			t.Errorf("point %d: found %s; expected %s", number, found, want)
		}
	}
}

// A better configuration sends requests elsewhere, and explain has the same reasons for them.
func TestTunedExplained(t *testing.T) {
	given := write(t, "given.yaml", blind)
	dir := t.TempDir()
	winner, recorded := filepath.Join(dir, "winner.yaml"), filepath.Join(dir, "run.ndjson.gz")
	args := []string{"tune", given, "--runs", "12", "-r", "3", "--write", winner, "--resume",
		filepath.Join(dir, "runs.ndjson")}
	text := printed(t, args...)
	for _, want := range []string{"is better than today's", "\nhit rate ", "\nbalance ", "\nqueue mean ",
		"\nlongest queue ", " of 150 requests go elsewhere by candidate 1 (seed 100001)\n",
		": scorer prefix-cache-scorer\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("found %s; expected %s", text, want)
		}
	}
	var out tune.Tuned
	if err := json.Unmarshal([]byte(printed(t, append(args, "--output", "json")...)), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Elsewhere) != 1 || out.Elsewhere[0].Moved < 3 || len(out.Elsewhere[0].Examples) != 3 {
		t.Fatalf("found %+v; expected three requests that go elsewhere", out.Elsewhere)
	}
	e := &out.Elsewhere[0]
	printed(t, "sim", given, "--seed", fmt.Sprint(e.Seed), "-n", fmt.Sprint(e.Requests), "--record", recorded)
	for i := range e.Examples {
		r := &e.Examples[i]
		var again decidedAgain
		found := printed(t, "explain", r.Request, "--from", recorded, "--config", winner, "--output", "json")
		if err := json.Unmarshal([]byte(found), &again); err != nil || again.Move == nil ||
			again.Move.Text() != r.Text() {
			t.Errorf("%s: explain found %+v, %v; expected %s", r.Request, again.Move, err, r.Text())
		}
		if !strings.Contains(text, r.Text()) {
			t.Errorf("tune does not print %s", r.Text())
		}
	}
}

// The configuration that tune finds is better than the given one, with each seed, through the real Envoy, too: the
// weights of scorers where caches matter and the given picker ignores them, and the split of servers where the given
// one has too few for prompts of 4,000 to 6,000 tokens.
func TestTunedLive(t *testing.T) {
	if !nightly.On() {
		t.Skip("make test-nightly plays it")
	}
	for example, x := range map[string]struct {
		set   []string // what is bad in the given scenario
		vary  string
		least float64 // the gain
	}{
		"kv-aware": {[]string{"pools[0].epp.config.schedulingProfiles[0].plugins[0].weight=0"}, "weights", 0.1},
		"pd": {[]string{"pools[0].disaggregation.prefillReplicas=1", "pools[0].replicas=3", "workload.rate=12",
			"workload.prompt.characters=16000..24000"}, "split", 0.5},
	} {
		args := []string{"scenario", "show", filepath.Join(repository, "examples", example+".yaml")}
		for _, set := range x.set {
			args = append(args, "--set", set)
		}
		given := write(t, "given.yaml", printed(t, args...))
		var out tune.Tuned
		text := printed(t, "tune", given, "--vary", x.vary, "-n", "300", "--runs", "40", "-r", "3", "--output", "json")
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		var winner []string
		for _, set := range out.Settings {
			winner = append(winner, "--set", set)
		}
		for _, config := range out.Configs {
			winner = append(winner, "--epp-config", write(t, "winner.yaml", config))
		}
		for _, seed := range []string{"2", "3"} {
			live := func(flags ...string) float64 {
				text := printed(t, append([]string{"run", given, "-n", "150", "--seed", seed, "--output", "json"},
					flags...)...)
				lines := strings.Split(strings.TrimSpace(text), "\n")
				var last struct{ Summary report.Summary }
				if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
					t.Fatal(err)
				}
				for _, m := range last.Summary.Measures {
					if m.Measure == "e2e mean" {
						return m.Value
					}
				}
				t.Fatalf("the run has no e2e mean: %.300s", text)
				return 0
			}
			today, tuned := live(), live(winner...)
			gain := (today - tuned) / today
			t.Logf("%s, seed %s: e2e mean %.4g s, tuned %.4g s, a gain of %.1f %% (%.1f %% in virtual time)", example,
				seed, today, tuned, 100*gain, 100*out.Best[out.Knee].Results[0].Gain)
			if !(gain > x.least) {
				t.Errorf("%s, seed %s: the tuned configuration gains %.3f; expected above %v", example, seed, gain,
					x.least)
			}
		}
	}
}
