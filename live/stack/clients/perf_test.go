package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// prometheus is a Prometheus: that on PATH, or Debian's, unpacked into the user's
// cache.
func prometheus(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("prometheus"); err == nil {
		return path
	}
	list, err := filepath.Abs(filepath.Join("testdata", "prometheus.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := installed(t, "prometheus", runtime.GOARCH, list, func(dir string) ([]byte, error) {
		if _, stderr, err := run(t, dir, nil, "apt-get", "download", "prometheus"); err != nil {
			return append(stderr, "prometheus is not on PATH"...), err
		}
		_, stderr, err := run(t, dir, nil, "sh", "-c",
			"dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb && test -x usr/bin/prometheus")
		return stderr, err
	})
	return filepath.Join(dir, "usr", "bin", "prometheus")
}

// scraping starts a Prometheus that asks the servers every second, and returns the
// base of its API.
func scraping(t *testing.T, binary string, servers []string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: servers, static_configs: "+
		"[{targets: ['%s']}]}]\n", strings.Join(servers, "', '"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.CommandContext(t.Context(), binary, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	base := "http://" + address
	for {
		if resp, err := http.Get(base + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return base
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("Prometheus does not start")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// asked is a Prometheus's value of an expression now.
func asked(t *testing.T, base, expression string) float64 {
	t.Helper()
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	if len(a.Data.Result) == 0 {
		return math.NaN()
	}
	var v float64
	fmt.Sscan(fmt.Sprint(a.Data.Result[0].Value[1]), &v)
	return v
}

// counted is from the servers' own pages: the sum of a counter, or of a histogram's sum and count.
func counted(t *testing.T, servers []string, name string) (sum, count float64) {
	t.Helper()
	for _, s := range servers {
		resp, err := http.Get("http://" + s + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(string(page)))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families[name].GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
			count += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, count
}

// stat is inference-perf's result for one quantity.
type stat struct {
	Mean float64 `json:"mean"`
}

// inference-perf, with a Prometheus beside it, comes to the same as the servers: as
// many tokens, and the same times, P/D included.
func TestInferencePerf(t *testing.T) {
	if !everything {
		t.Skip("make test-clients runs it: it fetches a hundred packages")
	}
	python, site := packagesOf(t, "inference-perf.txt", 12)
	binary := prometheus(t)
	tokenizer := t.TempDir() // the servers' own, in the form of transformers
	for _, name := range []string{"tokenizer.json", "chat_template.jinja"} {
		text, err := os.ReadFile(filepath.Join("..", "testdata", "model", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(tokenizer, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tokenizer, "tokenizer_config.json"),
		[]byte(`{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name := range stacks {
		t.Run(name, func(t *testing.T) { measure(t, name, python, site, binary, tokenizer) })
	}
	t.Run("the server alone", func(t *testing.T) {
		stacks["alone"] = stacks["plain"]
		defer delete(stacks, "alone")
		measure(t, "alone", python, site, binary, tokenizer)
	})
}

func measure(t *testing.T, name, python, site, binary, tokenizer string) {
	to := play(t, name, "prefill: 20ms, interTokenLatency: 20ms, tokenizer: model, maxModelLen: 8192")
	if name == "alone" {
		to.url = "http://" + to.decodes[0] + "/v1"
	}
	base := scraping(t, binary, to.decodes)
	dir := t.TempDir()
	config := fmt.Sprintf(`
api: {type: completion, streaming: true}
data: {type: random, input_distribution: {type: fixed, mean: 50, min: 50, max: 50, std_dev: 0, total_count: 40}, output_distribution: {type: fixed, mean: 30, min: 30, max: 30, std_dev: 0, total_count: 40}}
load: {type: constant, interval: 1, num_workers: 1, stages: [{rate: 4, duration: 8}]}
server: {type: vllm, model_name: m, base_url: %q, ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: %q}
metrics: {type: prometheus, prometheus: {url: %q, scrape_interval: 1}}
report: {request_lifecycle: {summary: true}, prometheus: {summary: true}}
storage: {local_storage: {path: %q}}
`, strings.TrimSuffix(to.url, "/v1"), tokenizer, base, dir)
	file := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"PYTHONPATH=" + site, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
		"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1"}
	out, stderr, err := run(t, dir, env, python, "-c", "from inference_perf.main import main_cli; main_cli()",
		"--config_file", file)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	var result struct {
		Successes struct {
			Count   int `json:"count"`
			Latency struct {
				E2E  stat `json:"request_latency"`
				TTFT stat `json:"time_to_first_token"`
				ITL  stat `json:"inter_token_latency"`
			} `json:"latency"`
			Throughput struct {
				In  float64 `json:"input_tokens_per_sec"`
				Out float64 `json:"output_tokens_per_sec"`
			} `json:"throughput"`
			Output stat `json:"output_len"`
		} `json:"successes"`
		Failures struct {
			Count int `json:"count"`
		} `json:"failures"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary_lifecycle_metrics.json"))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	s := &result.Successes
	n := float64(s.Count)
	if n < 25 || result.Failures.Count != 0 {
		t.Fatalf("%v requests succeeded and %d failed\n%s", n, result.Failures.Count, stderr)
	}
	mean := func(name string) float64 {
		sum, count := counted(t, to.decodes, name)
		return sum / count
	}
	total := func(name string) float64 {
		sum, _ := counted(t, to.decodes, name)
		return sum
	}
	within := func(what string, client, server, part, seconds float64) {
		t.Logf("%s: client %.6g, server %.6g (%+.2f %%)", what, client, server, 100*(client-server)/server)
		if !(math.Abs(client-server) <= part*server+seconds) {
			t.Errorf("%s: the client counts %.6g, the server %.6g", what, client, server)
		}
	}
	within("output tokens", n*s.Output.Mean, total("vllm:generation_tokens_total"), 0.01, 0)
	within("prompt tokens", n*s.Output.Mean*s.Throughput.In/s.Throughput.Out, total("vllm:prompt_tokens_total"), 0.01,
		0)
	within("ITL", s.Latency.ITL.Mean, mean("vllm:inter_token_latency_seconds"), 0.01, 0)
	// What lies between the client and the server is no time of the server's.
	within("TTFT", s.Latency.TTFT.Mean, mean("vllm:time_to_first_token_seconds"), 0.01, 0.25)
	within("E2E", s.Latency.E2E.Mean, mean("vllm:e2e_request_latency_seconds"), 0.01, 0.25)
	within("what Prometheus has", asked(t, base, "sum(vllm:generation_tokens_total)"),
		total("vllm:generation_tokens_total"), 0, 0)
	if reports, err := filepath.Glob(filepath.Join(dir, "*prometheus*.json")); err != nil || len(reports) == 0 {
		t.Errorf("there is no report of Prometheus' metrics: %v\n%s", err, stderr)
	}
}
