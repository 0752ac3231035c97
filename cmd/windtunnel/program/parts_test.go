package program

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// The same error has the same exit code in every part: a port in use, a missing file, a wrong flag.
func TestPartsHaveOneTableOfExitCodes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, _ := net.SplitHostPort(l.Addr().String())
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.json")
	good, empty := filepath.Join(dir, "epp.yaml"), filepath.Join(dir, "empty")
	for name, text := range map[string]string{
		good: `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: file-discovery, parameters: {path: ` + filepath.Join(dir, "endpoints.yaml") + `}}]
dataLayer: {discovery: {pluginRef: file-discovery}}
`,
		filepath.Join(dir, "endpoints.yaml"): "endpoints: [{name: a, address: 127.0.0.1, port: \"1\"}]\n", empty: "",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const epp = "epp --pool-name p --secure-serving=false --grpc-port 0 --grpc-health-port 0 --metrics-port 0 " +
		"--config-file "
	for _, c := range []struct {
		code exit.Code
		line string
		says string
	}{
		{exit.Environment, epp + good + " --grpc-port " + taken, "address already in use"},
		{exit.Environment, epp + good + " --metrics-port " + taken, "address already in use"},
		{exit.Environment, "modelserver -- --port " + taken, "address already in use"},
		{exit.Environment, "sidecar --secure-proxy=false --port " + taken, "address already in use"},
		{exit.Environment, "sidecar --secure-proxy=false --port 0 --metrics-port " + taken, "address already in use"},
		{exit.Environment, "kv-manager --zmq-bind none --http 127.0.0.1:" + taken, "address already in use"},
		{exit.Environment, "kv-manager --http 127.0.0.1:0 --zmq-bind tcp://127.0.0.1:" + taken,
			"address already in use"},

		{exit.Input, epp + missing, "missing.json"},
		{exit.Input, epp + good + " --metrics-token-file " + missing, "missing.json"},
		{exit.Input, epp + good + " --metrics-cert-dir " + missing, "missing.json"},
		{exit.Input, "modelserver -- --config " + missing, "missing.json"},
		{exit.Input, "modelserver -- --dataset-path " + missing, "missing.json"},
		{exit.Input, "modelserver -- --tokenizer " + missing, "missing.json"},
		{exit.Input, "modelserver -- --ssl-certfile " + missing + " --ssl-keyfile " + missing, "missing.json"},
		{exit.Input, "sidecar --port 0 --configuration-file " + missing, "missing.json"},
		{exit.Input, "sidecar --port 0 --enable-ssrf-protection --endpoints-file " + missing, "missing.json"},
		{exit.Input, "sidecar --port 0 --ca-file " + missing, "missing.json"},
		{exit.Input, "sidecar --port 0 --cert-path " + missing, "missing.json"},
		{exit.Input, "kv-manager --zmq-bind none --http 127.0.0.1:0 --tokenizer " + missing, "missing.json"},
		{exit.Input, "predictor --no-training --prediction-port 0 --load-model " + missing, "missing.json"},

		{exit.Usage, epp + good + " --metrics-endpoint-auth", "--metrics-token-file"},
		{exit.Usage, epp + good + " --metrics-token-file " + empty, "no token"},
		{exit.Usage, "modelserver -- --host 0.0.0.0 --advertise http://a", "--advertise"},
		{exit.Usage, "modelserver -- --body-timeout soon", "--body-timeout"},
		{exit.Usage, "sidecar --port 0 --body-timeout=-1s", "--body-timeout"},
		{exit.Usage, "kv-manager --no-such-flag", "no-such-flag"},
	} {
		var out bytes.Buffer
		if code := run(strings.Fields(c.line), testOutside(&out)); code != int(c.code) ||
			!strings.Contains(out.String(), c.says) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s", strings.ReplaceAll(c.line, dir, ""), code, c.code, c.says,
				out.String())
		}
	}
}
