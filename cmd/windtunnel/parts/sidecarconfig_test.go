package parts

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// sidecarOptions returns the sidecar's options for a command line and an environment.
func sidecarOptions(t *testing.T, env map[string]string, args ...string) (sidecar.Options, string, error) {
	t.Helper()
	var said bytes.Buffer
	o := console.New()
	o.Stdout, o.Stderr = &said, &said
	o.Env = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	var c Sidecar
	inner, err := line(o, &c, "sidecar", args, o.Env)
	if err != nil {
		return sidecar.Options{}, said.String(), err
	}
	opts, err := c.options(inner)
	return opts, said.String(), err
}

// The flags that a sidecar's options return result in the same options.
func TestSidecarFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--port=8086", "--kv-connector=mooncake", "--mooncake-bootstrap-port=9001", "--p2p-connector-port=7900",
			"--enable-prefiller-sampling", "--prefill-max-retries=2", "--prefill-retry-on-5xx",
			"--prefill-fallback-local", "--secure-proxy=false"},
		{"--kv-connector=sglang", "--sglang-bootstrap-port=9002", "--data-parallel-size=4", "--decode-chunk-size=8",
			"--ec-connector=ec-nixl", "--enable-tls=prefiller,encoder", "--tls-insecure-skip-verify=decoder",
			"--ca-file=ca.pem", "--cert-path=certs"},
		{"--enable-p2p-pull", "--enable-ssrf-protection", "--objects=dir", "--inference-pool=here/chat",
			"--prefill-url=http://127.0.0.2:1", "--prefill-url=http://127.0.0.3:1", "--session-cache-size=7",
			"--body-timeout=0", "--metrics-port=9400"},
		{"--enable-ssrf-protection", "--endpoints-file=pool.yaml", "--advertise=10.0.0.9", "--decoder-host=10.0.0.8",
			"--max-idle-conns-per-host=9", "--timing-headers=false", "--decoder-health", "--kv-block-bytes=4096",
			"--pod-name=chat-0"},
	} {
		want, _, err := sidecarOptions(t, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := sidecarOptions(t, nil, want.Flags()...)
		want.Log, got.Log = nil, nil
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\nare told as %v,\nwhich is %+v (%v),\nexpected %+v", args, want.Flags(), got, err, want)
		}
	}
}

// A flag takes precedence over the configuration, and the configuration over the environment, as in pd-sidecar.
func TestSidecarConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sidecar.yaml")
	text := `port: 8085
vllm-port: 8203
kv-connector: mooncake
mooncake-bootstrap-port: 9001
enable-prefiller-sampling: false
prefill-max-retries: 2
prefill-retry-backoff: 50ms
enable-tls: [prefiller, encoder]
secure-proxy: false
metrics-port: 9400
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"MOONCAKE_BOOTSTRAP_PORT": "9100", "ENABLE_PREFILLER_SAMPLING": "true",
		"P2P_CONNECTOR_PORT": "7900", "POD_IP": "10.0.0.9"}
	o, _, err := sidecarOptions(t, env, "--configuration-file", file, "--port=8086", "--enable-tls=decoder",
		"--tracing=T")
	if err != nil {
		t.Fatal(err)
	}
	d := o.Disagg
	if o.Listen != "127.0.0.1:8086" || o.Decoder != "127.0.0.1:8203" || d.Connector != connector.Mooncake ||
		d.MeetingPort != 9001 || d.Sample ||
		d.Retries != 2 || d.RetryBackoff.Duration().String() != "50ms" || o.Prefiller.On || !o.DecoderTLS.On ||
		o.Encoder.On || o.Serve.On ||
		o.MetricsListen != "127.0.0.1:9400" || d.P2PPort != 7900 || d.PodIP != "10.0.0.9" {
		t.Errorf("%+v", o)
	}
	o, said, err := sidecarOptions(t, nil,
		"--configuration={port: 8085, model-server-port: 8203, vllm-port: 1, prefill-retry-backoff: soon}",
		"--secure-proxy=false")
	if err != nil || o.Listen != "127.0.0.1:8085" || o.Decoder != "127.0.0.1:8203" ||
		o.Disagg.RetryBackoff.Duration().String() != "200ms" || !strings.Contains(said, "soon") {
		t.Errorf("%+v %s %v", o, said, err)
	}
	if o, _, err = sidecarOptions(t, map[string]string{"MORIIO_METRICS_ADDR": ":9090"}); err != nil ||
		o.MetricsListen != "127.0.0.1:9090" {
		t.Errorf("%+v %v", o, err)
	}
}

// MoRI-IO's flags, with the checks of the real sidecar.
func TestSidecarMoRIIO(t *testing.T) {
	o, _, err := sidecarOptions(t, map[string]string{"POD_IP": "10.0.0.9", "MORIIO_DNS_RESOLVE_TTL_SECONDS": "7"},
		"--moriio-write-mode", "--moriio-parallel-dispatch", "--moriio-dp-size=4", "--moriio-dp-size-local=2",
		"--moriio-remote-hosts=10.1.0.1,10.1.0.2", "--moriio-decode-hosts=10.2.0.1,10.2.0.2", "--moriio-tp-size", "2")
	m := o.Disagg.MoRIIO
	if err != nil || !m.Write || !m.Parallel || m.DPSize != 4 || m.TPSize != 2 || m.DecodeNotifyPort != 61005 ||
		o.Peers.Local != "10.0.0.9" || len(o.Peers.Prefill) != 2 || o.ResolveTTL.Seconds() != 7 {
		t.Fatalf("%+v %v", o, err)
	}
}

func TestSidecarRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--configuration={port:~8085,~colour:~red}", "--configuration:1:14: colour: unknown field"},
		{"--configuration={port:~'8085'}", `port: found "8085"; expected a whole number`},
		{"--configuration={enable-tls:~prefiller}", "expected a list"},
		{"--configuration=[1]", "expected a mapping"},
		{"--configuration={port:~1,~port:~2}", "port: given twice"},
		{"--configuration={port:~8085} --configuration-file=x", "no such file"},
		{"--configuration-file=/nowhere.yaml", "no such file"},
		{"--enable-p2p-pull --kv-connector=sglang", "nixlv2"},
		{"--ec-connector=tape", "ec-example"},
		{"--moriio-write-mode", "POD_IP"},
		{"--moriio-parallel-dispatch", "--moriio-write-mode"},
		{"--moriio-remote-hosts=a,b --moriio-dp-size=4", "names 2 pods"},
		{"--metrics-port=70000", "0 to 65535"},
		{"--inference-pool=a/b/c", "NAMESPACE/NAME"},
		{"--data-parallel-size=3 --port=65534", "65535"},
		{"--prefill-max-retries=1 --prefill-retry-backoff=0s", "above 0"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		if _, _, err := sidecarOptions(t, nil, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q in it", c.args, err, c.want)
		}
	}
}

func FuzzSidecarConfiguration(f *testing.F) {
	f.Add([]byte("{port: 8085, model-server-port: 8203}"))
	f.Add([]byte("enable-tls: [a, *b]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var said bytes.Buffer
		flags, err := configFlags("sidecar.yaml", text, &said)
		for k := range flags {
			if err != nil || configKeys[k] == "" {
				t.Fatal(k, err)
			}
		}
	})
}
