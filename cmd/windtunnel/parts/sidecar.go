package parts

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/spans"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// Sidecar runs the routing sidecar alone, with the flags of today's pd-sidecar and of documents 002 and 003
// (docs/documents.md).
type Sidecar struct {
	Listen          string `default:"127.0.0.1" placeholder:"IP" help:"Address to listen on; 0.0.0.0 in a container."`
	Port            int    `default:"8000" help:"Port to listen on."`
	ModelServerPort int    `default:"8200" help:"Port of the decode server."`
	DecoderHost     string `default:"127.0.0.1" placeholder:"HOST" help:"Host of the decode server."`
	Ranks           int    `name:"data-parallel-size" default:"1" help:"How many ports from --port on, one for each rank of the decode server."`

	Connector     string `name:"kv-connector" default:"nixlv2" placeholder:"NAME" help:"nixlv2, shared-storage, sglang, mooncake, offloading, nixl or lmcache."`
	BootstrapPort int    `name:"mooncake-bootstrap-port" default:"8998" fromenv:"MOONCAKE_BOOTSTRAP_PORT" help:"Port of mooncake's bootstrap server."`
	SGLangPort    int    `name:"sglang-bootstrap-port" default:"8998" fromenv:"SGLANG_BOOTSTRAP_PORT" help:"Port of SGLang's bootstrap server."`
	P2PPort       int    `name:"p2p-connector-port" default:"7777" fromenv:"P2P_CONNECTOR_PORT" help:"Peer port of the offloading connector, of the first rank."`
	P2PPull       bool   `name:"enable-p2p-pull" help:"With nixlv2, pull blocks from x-kv-cache-source-host-port."`
	Sampling      bool   `name:"enable-prefiller-sampling" fromenv:"ENABLE_PREFILLER_SAMPLING" help:"Try the named prefillers in random order."`
	ECConnector   string `placeholder:"NAME" help:"Encode images, audio and video first: ec-example or ec-nixl."`

	Retries  int           `name:"prefill-max-retries" help:"Retries after a 502, 503, 504 or a broken connection."`
	RetryAll bool          `name:"prefill-retry-on-5xx" help:"Retry after every 5xx."`
	Backoff  time.Duration `name:"prefill-retry-backoff" default:"200ms" help:"Time between tries."`
	FallBack bool          `name:"prefill-fallback-local" help:"Prefill on the decode server if no prefiller can."`

	PrefillThreshold int `placeholder:"TOKENS" help:"Prefill elsewhere only prompts of more tokens than this, at 4 bytes each (document 003); 0 for all."`

	Chunk int `name:"decode-chunk-size" help:"Decode this many tokens at a time; 0 for all."`

	Protect       bool   `name:"enable-ssrf-protection" help:"Refuse prefillers outside the pool."`
	EndpointsFile string `placeholder:"FILE" help:"The pool, in the form of the EPP's file-discovery."`
	Objects       string `placeholder:"DIR" fromenv:"WINDTUNNEL_OBJECTS" help:"Directory of YAML files instead of a Kubernetes API server."`
	PoolNamespace string `name:"inference-pool-namespace" fromenv:"INFERENCE_POOL_NAMESPACE" default:"default" help:"Namespace of the pool."`

	PoolName  string `name:"inference-pool-name" fromenv:"INFERENCE_POOL_NAME" help:"Name of the pool among --objects."`
	Pool      string `name:"inference-pool" placeholder:"NAMESPACE/NAME" fromenv:"INFERENCE_POOL" help:"Both in one."`
	PoolGroup string `default:"inference.networking.k8s.io" help:"Accepted; the pool is found by its name."`

	PrefillURL   []string `placeholder:"URL" help:"Session mode: prefill new conversations there. Left out: the pool's prefill endpoints. Repeatable."`
	SessionCache int      `name:"session-cache-size" fromenv:"SESSION_CACHE_SIZE" placeholder:"SESSIONS" help:"Sessions to remember; turns session mode on."`

	SecureProxy bool     `default:"true" help:"Serve HTTPS."`
	CertPath    string   `placeholder:"DIR" help:"Directory with tls.crt and tls.key, else one is generated."`
	CAFile      string   `placeholder:"FILE" help:"Certificates of prefillers' and decode server's signers."`
	EnableTLS   []string `placeholder:"prefiller,decoder,encoder" help:"Which servers to reach over HTTPS."`
	SkipVerify  []string `name:"tls-insecure-skip-verify" placeholder:"prefiller,decoder,encoder" help:"Whose certificates not to verify."`

	PrefillerTLS  bool `name:"prefiller-use-tls" hidden:"" help:"--enable-tls prefiller."`
	DecoderTLS    bool `name:"decoder-use-tls" hidden:"" help:"--enable-tls decoder."`
	PrefillerSkip bool `name:"prefiller-tls-insecure-skip-verify" hidden:"" help:"--tls-insecure-skip-verify prefiller."`
	DecoderSkip   bool `name:"decoder-tls-insecure-skip-verify" hidden:"" help:"--tls-insecure-skip-verify decoder."`

	Advertise string `placeholder:"HOST" help:"The sidecar's address for others, else --listen or POD_IP."`
	bodyFlags `embed:""`

	MaxIdle       int   `name:"max-idle-conns-per-host" default:"1024" help:"Idle connections kept to one server."`
	TimingHeaders bool  `default:"true" help:"Add x-prefill-time-ms and the like to answers, as in document 003 (docs/documents.md#document-003)."`
	DecoderHealth bool  `help:"Answer /health as the decode server does, as in document 003 (docs/documents.md#document-003), else with 200."`
	BlockBytes    int64 `name:"kv-block-bytes" help:"Size of one KV block, for llmd_sidecar_kv_cache_transfer_bytes."`

	PodName   string `fromenv:"POD_NAME" help:"Value of x-decode-pod."`
	Verbosity int    `name:"v" short:"v" default:"2" help:"Log verbosity: 0 and 1 warnings, from 2 info, from 4 debug."`

	Tracing bool `help:"Send spans by OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT."`
	spans.To
	MetricsPort   int        `help:"Port of the sidecar's own metrics and its sessions (/debug/sessions); 0: metrics only, on --port with the decode server's."`
	MetricsAddr   string     `hidden:"" fromenv:"MORIIO_METRICS_ADDR" help:"The environment's --metrics-port."`
	Zap           string     `name:"zap-encoder" default:"console" enum:"json,console" help:"Form of log lines."`
	Configuration configText `placeholder:"YAML" help:"Flags as YAML, such as {port: 8085}, below those given."`
	ConfigFile    configPath `name:"configuration-file" placeholder:"FILE" help:"The same in a file."`

	PodIP  string      `hidden:"" fromenv:"POD_IP" help:"The pod's address for others."`
	MoRIIO moriioFlags `embed:"" prefix:"moriio-"`
	eppLogging
}

func (Sidecar) Help() string {
	return `The routing sidecar by itself, in front of a decode server: a request with x-prefiller-host-port is
prefilled there first, all others pass straight through. It takes the flags of pd-sidecar, and those of documents
002 and 003 (docs/documents.md) under their old names (-vllm-port, --decoder-port, -connector,
--prefiller-use-tls). For --enable-ssrf-protection the pool comes from --objects (or WINDTUNNEL_OBJECTS with
INFERENCE_POOL_NAME), or from --endpoints-file. The connector tcp of document 002
(docs/documents.md#document-002) is nixlv2: without RDMA every connector uses TCP.

  windtunnel sidecar --secure-proxy=false --model-server-port 8001
  windtunnel sidecar -port=8000 -vllm-port=8001 -connector=nixlv2 -secure-proxy=false
  windtunnel sidecar --enable-ssrf-protection --objects ./manifests --inference-pool-name my-pool
  windtunnel sidecar --enable-ssrf-protection --endpoints-file endpoints.yaml
  windtunnel sidecar --prefill-url http://127.0.0.2:8000        # sessions (docs/documents.md#document-002)

Certificates, --objects and --endpoints-file are read again when they change. --session-cache-size is 1000
with --prefill-url. An encoder's servers come from x-encoder-hosts-ports; ec-example uses shared storage.

Environment: INFERENCE_POOL, INFERENCE_POOL_NAMESPACE, INFERENCE_POOL_NAME, WINDTUNNEL_OBJECTS,
SESSION_CACHE_SIZE, SGLANG_BOOTSTRAP_PORT, MOONCAKE_BOOTSTRAP_PORT, P2P_CONNECTOR_PORT,
ENABLE_PREFILLER_SAMPLING, POD_NAME, POD_IP, MORIIO_METRICS_ADDR, MORIIO_DNS_RESOLVE_TTL_SECONDS,
MORIIO_DNS_RESOLVE_TIMEOUT_SECONDS. UCX_TLS has no effect.`
}

// words matches the ends of words in a field's name, as kong does for the flag of a field without a name.
var words = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// Run serves until an interruption.
func (c *Sidecar) Run(o *console.Console) error {
	opts, err := c.options(o)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if c.PoolGroup != defaultPoolGroup {
		opts.Log.Info("sidecar: a flag that has no effect here", "flag", "--pool-group")
	}
	ctx, stop := o.Context()
	defer stop()
	began := time.Now()
	sender, err := c.Alone(o, c.Tracing, began)
	if err != nil {
		return err
	}
	defer sender.End(o)
	opts.Recorder, opts.Disagg.Trace, opts.Now = sender.Recorder(), sender.Trace(),
		func() machine.Time { return machine.FromDuration(time.Since(began)) }
	s, err := sidecar.Start(opts)
	if err != nil {
		return exit.ByCause(exit.Environment, err)
	}
	scheme := "http"
	if c.SecureProxy {
		scheme = "https"
	}
	fmt.Fprintf(o.Stderr, "windtunnel sidecar: %s://%s before %s, connector %s\n", scheme, s.Addr(), opts.Decoder,
		opts.Disagg.Connector.Name)
	if at := s.MetricsAddr(); at != "" {
		fmt.Fprintf(o.Stderr, "windtunnel sidecar: its own metrics on http://%s/metrics\n", at)
	}
	return serve.Until(ctx, 30*time.Second, s.Failed(), s.Stop)
}

// bodyFlags limit the time that a request's body takes.
type bodyFlags struct {
	BodyIdle  time.Duration `name:"body-idle-timeout" default:"30s" help:"Longest pause within a request body; 0 for no limit."`
	BodyTotal time.Duration `name:"body-timeout" default:"5m" help:"Longest time for a whole request body; 0 for no limit."`
}

func (f bodyFlags) limits() (serve.BodyLimits, error) {
	if f.BodyIdle < 0 || f.BodyTotal < 0 {
		return serve.BodyLimits{}, errors.New("--body-idle-timeout and --body-timeout: expected no negative duration")
	}
	l := serve.BodyLimits{Idle: f.BodyIdle, Total: f.BodyTotal}
	for _, d := range []*time.Duration{&l.Idle, &l.Total} {
		if *d == 0 {
			*d = -1 // where 0 is the default
		}
	}
	return l, nil
}

// meetingPort returns the port where prefill servers meet the decode server, from the connector's own flag.
func (c *Sidecar) meetingPort(way *connector.Connector) int {
	switch way {
	case connector.Mooncake:
		return c.BootstrapPort
	case connector.SGLang:
		return c.SGLangPort
	}
	return 0
}

func (c *Sidecar) options(o *console.Console) (sidecar.Options, error) {
	var none sidecar.Options
	if c.Configuration != "" && c.ConfigFile != "" {
		return none, errors.New("--configuration and --configuration-file exclude each other: give one of them")
	}
	if err := cmp.Or(within("--port", c.Port, 0, maxPort),
		within("--model-server-port", c.ModelServerPort, 1, maxPort),
		within("--mooncake-bootstrap-port", c.BootstrapPort, 1, maxPort),
		within("--p2p-connector-port", c.P2PPort, 1, maxPort), within("--metrics-port", c.MetricsPort, 0, maxPort),
		within("--data-parallel-size", c.Ranks, 1, 256)); err != nil {
		return none, err
	}
	if c.Retries < 0 || c.Retries > 100 || c.Backoff < 0 || c.Chunk < 0 || c.SessionCache < 0 ||
		c.PrefillThreshold < 0 {
		return none, errors.New(
			"--prefill-max-retries, --prefill-retry-backoff, --decode-chunk-size, --session-cache-size and " +
				"--prefill-threshold: expected no negative number, and at most 100 retries")
	}
	if c.Retries > 0 && c.Backoff == 0 {
		return none, errors.New("--prefill-retry-backoff 0s: expected a time above 0 beside --prefill-max-retries")
	}
	for flag, port := range map[string]int{"--port": c.Port, "--model-server-port": c.ModelServerPort,
		"--p2p-connector-port": c.P2PPort} {
		if c.Ranks > 1 && port+c.Ranks-1 > 65535 {
			return none, fmt.Errorf("%s %d: with --data-parallel-size %d the last rank's port would be above 65535",
				flag, port, c.Ranks)
		}
	}
	if strings.EqualFold(c.Connector, "tcp") { // of document 002
		fmt.Fprintln(o.Stderr, "notice: there is no connector tcp; nixlv2 is used, which goes over TCP without RDMA")
		c.Connector = connector.NIXLv2.Name
	}
	way, err := connector.Named(c.Connector)
	if err != nil {
		return none, fmt.Errorf("--kv-connector: %w", err)
	}
	if c.P2PPull && way != connector.NIXLv2 {
		return none, fmt.Errorf(
			"--enable-p2p-pull joins the offloading connector to nixlv2; with --kv-connector %s it has no meaning",
			way.Name)
	}
	encoder, err := disagg.ParseECConnector(c.ECConnector)
	if err != nil {
		return none, fmt.Errorf("--ec-connector: %w", err)
	}
	moriio, err := c.MoRIIO.config()
	if err != nil {
		return none, err
	}
	if strings.Count(c.Pool, "/") > 1 || strings.HasPrefix(c.Pool, "/") || strings.HasSuffix(c.Pool, "/") {
		return none, fmt.Errorf("--inference-pool %q: expected NAMESPACE/NAME or NAME", c.Pool)
	}
	if namespace, name, ok := strings.Cut(c.Pool, "/"); ok {
		c.PoolNamespace, c.PoolName = namespace, name
	} else if c.Pool != "" {
		c.PoolName = c.Pool
	}
	switch {
	case c.EndpointsFile != "":
		c.Objects = "" // the file alone counts
	case c.Objects != "" && c.PoolName == "":
		return none, errors.New(
			"--objects needs the pool's name: give --inference-pool-name, or INFERENCE_POOL_NAME in the environment")
	case c.Protect && c.Objects == "":
		return none, errors.New(
			"--enable-ssrf-protection needs the pool: give --objects (or WINDTUNNEL_OBJECTS), a directory with the " +
				"InferencePool and its Pods, or --endpoints-file; there is no Kubernetes here to ask")
	}
	for flag, list := range map[string][]string{"--enable-tls": c.EnableTLS,
		"--tls-insecure-skip-verify": c.SkipVerify} {
		for _, who := range list {
			if !slices.Contains([]string{"prefiller", "decoder", "encoder"}, who) {
				return none, fmt.Errorf("%s %q: expected prefiller, decoder or encoder", flag, who)
			}
		}
	}
	flags := map[string]any{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Sidecar]()) {
		name := cmp.Or(f.Tag.Get("name"), strings.ToLower(words.ReplaceAllString(f.Name, "$1$3-$2$4")))
		if f.IsExported() {
			flags[name] = reflect.ValueOf(c).Elem().FieldByIndex(f.Index).Interface()
		}
	}
	opts := sidecar.Options{
		Listen:  net.JoinHostPort(c.Listen, strconv.Itoa(c.Port)),
		Decoder: net.JoinHostPort(c.DecoderHost, strconv.Itoa(c.ModelServerPort)), Ranks: c.Ranks,
		Disagg: disagg.Config{Connector: way, MeetingPort: c.meetingPort(way), Encoder: encoder, MoRIIO: moriio,
			PodIP: c.PodIP},
		Peers: connector.MoRIIOPeers{Local: c.MoRIIO.LocalIP, Decode: c.MoRIIO.DecodeHosts,
			Prefill: c.MoRIIO.RemoteHosts},
		ResolveTTL:     time.Duration(c.MoRIIO.TTL) * time.Second,
		ResolveTimeout: time.Duration(c.MoRIIO.Timeout) * time.Second,
		PlainHeaders:   !c.TimingHeaders,
		TLS: sidecar.TLS{Serve: sidecar.ServeTLS{On: c.SecureProxy},
			Prefiller:  c.legTLS("prefiller", c.PrefillerTLS, c.PrefillerSkip),
			DecoderTLS: c.legTLS("decoder", c.DecoderTLS, c.DecoderSkip), Encoder: c.legTLS("encoder", false, false)},
	}
	opts.Take(flags)
	if opts.Body, err = c.limits(); err != nil {
		return none, err
	}
	if opts.MetricsListen, err = c.metricsListen(); err != nil {
		return none, err
	}
	if opts.SessionCache == 0 && len(c.PrefillURL) > 0 {
		opts.SessionCache = disagg.DefaultSessions
	}
	if opts.Log, err = newLog(o.Stderr, c.Verbosity, c.Zap, c.ZapLevel); err != nil {
		return none, err
	}
	opts.Log = opts.Log.With(slog.String("component", "sidecar"))
	return opts, nil
}

// legTLS returns the TLS settings of the requests to a kind of server. on and skip come from old flags.
func (c *Sidecar) legTLS(server string, on, skip bool) sidecar.LegTLS {
	return sidecar.LegTLS{On: on || slices.Contains(c.EnableTLS, server),
		Skip: skip || slices.Contains(c.SkipVerify, server)}
}

// metricsListen returns the address of the sidecar's own metrics, "" without one.
func (c *Sidecar) metricsListen() (string, error) {
	if c.MetricsPort > 0 {
		return net.JoinHostPort(c.Listen, strconv.Itoa(c.MetricsPort)), nil
	}
	address := strings.TrimSpace(c.MetricsAddr)
	if address == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("MORIIO_METRICS_ADDR %q: %w; expected an address such as :9090", address, err)
	}
	host = cmp.Or(host, c.Listen) // like the sidecar itself: the loopback unless --listen is given
	return net.JoinHostPort(host, port), nil
}

// renamed are the sidecar's renamed flags with their current names, "" for several.
var renamed = map[string]string{
	"vllm-port": "model-server-port", "decoder-port": "model-server-port", "connector": "kv-connector",
	"prefiller-use-tls": "", "decoder-use-tls": "", "prefiller-tls-insecure-skip-verify": "",
	"decoder-tls-insecure-skip-verify": "",
}

// sidecarArg rewrites a flag in the form of the documents: with one dash, or under its old name.
func sidecarArg(arg string, o *console.Console) string {
	name, value, assigned := strings.Cut(arg, "=")
	bare := strings.TrimLeft(name, "-")
	dashes := len(name) - len(bare)
	if dashes == 0 || dashes > 2 || bare == "" || len(bare) == 1 && !assigned {
		return arg
	}
	if today, old := renamed[bare]; old {
		instead := "--" + today
		if today == "" {
			instead = "--enable-tls or --tls-insecure-skip-verify"
			today = bare
		}
		fmt.Fprintf(o.Stderr, "notice: --%s is the old name; today's is %s\n", bare, instead)
		bare = today
	}
	if assigned {
		return "--" + bare + "=" + value
	}
	return "--" + bare
}
