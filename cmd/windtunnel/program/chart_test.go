package program

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/internal/packed"
)

// rendered has the objects of deploy/chart. test/chart, which has Helm's code, compares and renews them.
const rendered = "../../../test/chart/testdata/"

// The goldens are of the chart as it is, and up would start each of them without a mistake, and knows every part.
func TestChart(t *testing.T) {
	t.Parallel()
	have, err := os.ReadFile(rendered + "digest")
	if err != nil {
		t.Fatal(err)
	}
	want, err := packed.Digest(os.DirFS("../../../deploy/chart"))
	if err != nil || strings.TrimSpace(string(have)) != want {
		t.Errorf("deploy/chart was changed after the golden files (%v): run make test-chart UPDATE=1", err)
	}
	goldens, err := filepath.Glob(rendered + "*.golden.yaml")
	if err != nil || len(goldens) < 6 {
		t.Fatalf("%d goldens, %v", len(goldens), err)
	}
	for _, golden := range goldens {
		var out, notes bytes.Buffer
		o := console.New()
		o.Stdout, o.Stderr = &out, &notes
		if code := run([]string{"up", "-f", golden, "--dry-run"}, o); code != 0 {
			t.Errorf("%s: exit code %d: %s", golden, code, notes.String())
		}
		for _, line := range strings.Split(out.String(), "\n") {
			unknown := strings.Contains(line, "nothing here simulates") &&
				!slices.ContainsFunc([]string{"dynamo-frontend", "controller", "gateway"},
					func(name string) bool { return strings.Contains(line, "container "+name) })
			if unknown || strings.HasPrefix(line, "note:") && !strings.Contains(line, "no effect") &&
				!strings.Contains(line, "self-signed certificate") {
				t.Errorf("%s: %s", golden, line)
			}
		}
	}
}

// helm template | windtunnel up -f - answers a request with the default values, and with prefill and decode apart.
func TestChartIsUp(t *testing.T) {
	if !nightly.On() {
		t.Skip("nightly")
	}
	for _, name := range []string{"default", "disaggregated"} {
		text, err := os.ReadFile(rendered + name + ".golden.yaml")
		if err != nil {
			t.Fatal(err)
		}
		ports := freeport.Row(t, 2)
		for i, port := range []string{"HTTP, port: 80", "    port: 443"} {
			own := fmt.Appendf(nil, "%s: %d", port[:strings.LastIndex(port, ":")], ports+i)
			text = bytes.Replace(text, []byte(port), own, 1)
		}
		u := bringUpFrom(t, bytes.NewReader(text), "-f", "-")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.at.Listeners[0].URL+"/v1/completions",
			strings.NewReader(`{"model":"meta-llama/Llama-3.1-8B-Instruct","max_tokens":2,"prompt":"`+
				strings.Repeat("a prompt of many words ", 40)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "llm.example.com"
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"completion_tokens":2`)) {
			t.Errorf("%s: %d, %v: %s", name, resp.StatusCode, err, body)
		}
		u.end()
	}
	http.DefaultClient.CloseIdleConnections()
}
