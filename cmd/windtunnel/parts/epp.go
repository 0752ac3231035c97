package parts

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/spans"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

// EPP runs the endpoint picker alone, behind any Envoy, with the real EPP's own flags.
type EPP struct {
	ConfigFile string `placeholder:"FILE" help:"EndpointPickerConfig."`
	ConfigText string `placeholder:"YAML" help:"The configuration as text, instead of a file."`

	PoolName      string `help:"Name of the InferencePool, also in metrics."`
	PoolNamespace string `placeholder:"NAME" help:"Namespace of the pool (NAMESPACE, default)."`

	PoolGroup string `default:"inference.networking.k8s.io" help:"Accepted; a pool of any group is found by its name."`

	Objects             string `placeholder:"DIR" help:"Directory of YAML files instead of a Kubernetes API server: the InferencePool, its Pods and more."`
	EndpointSelector    string `placeholder:"SELECTOR" help:"Selector of pods, instead of a pool; needs --objects, POD_NAME."`
	EndpointTargetPorts []int  `placeholder:"PORT" help:"Ports of the selected pods."`

	Listen         string `default:"127.0.0.1" placeholder:"IP" help:"Address to listen on; 0.0.0.0 in a container."`
	GRPCPort       int    `default:"9002" help:"Port of ext_proc and gRPC health."`
	GRPCHealthPort int    `default:"9003" help:"Port of gRPC health alone."`
	MetricsPort    int    `default:"9090" help:"Port of /metrics."`

	SecureServing bool `default:"true" help:"Serve ext_proc over TLS."`
	HealthCheck   bool `name:"health-checking" help:"Accepted; health is always served."`
	eppServing    `embed:""`
	bodyFlags     `embed:""`

	Held bool `name:"hold" help:"Hold requests open as in document 000 (docs/documents.md#document-000). The model servers must support this flow."`

	HoldLimit time.Duration `default:"1m" help:"Longest time that a request is held, before the client gets a 504."`
	LosePart2 bool          `name:"lose-part2" help:"Never send part 2 of a held request: a fault for labs."`

	EmitEndpointScores bool `help:"Put the scores into the dynamic metadata."`
	PodHeaders         bool `help:"Name the chosen pods in x-target-pod, x-selected-pod and x-prefill-pod, as documents 002 and 003 do (docs/documents.md)."`
	ExplainHeaders     bool `help:"The pods, cache hits, scores and scheduling times in every response."`
	DisableSubset      bool `name:"disable-endpoint-subset-filter" help:"Ignore the data plane's subset hint."`
	AllowExperimental  bool `name:"allow-experimental-plugins" help:"Admit plug-ins of Alpha stability."`

	RefreshMetricsInterval    time.Duration `default:"50ms" help:"Interval between scrapes of model servers."`
	RefreshPrometheusInterval time.Duration `name:"refresh-prometheus-metrics-interval" default:"5s" help:"Accepted; the pool's metrics are always current."`
	MetricsStaleness          time.Duration `name:"metrics-staleness-threshold" default:"2s" help:"Accepted; detectors have their own."`
	EnableStreamMetrics       bool          `name:"enable-grpc-stream-metrics" help:"Count ext_proc streams."`

	Tracing bool `default:"true" help:"Send spans by OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT."`
	spans.To
	MetricsAuth  *bool         `name:"metrics-endpoint-auth" help:"Authenticate readers of /metrics; =false serves all. Not given: this machine reads without."`
	EnablePprof  bool          `default:"true" help:"Serve Go's profiles under /debug/pprof/ on the metrics port."`
	LeaderElect  bool          `name:"ha-enable-leader-election" help:"In windtunnel-k8s, one replica serves and the others wait; elsewhere every replica serves."`
	DrainTimeout time.Duration `default:"30s" help:"How long streams may continue after the signal to stop."`
	Verbosity    int           `name:"v" short:"v" default:"2" help:"Log verbosity: 0 and 1 warnings, 2 and 3 info, from 4 debug."`
	Zap          string        `name:"zap-encoder" default:"json" enum:"json,console" help:"Form of log lines."`
	eppLogging   `embed:""`
	Errors       string `default:"epp" enum:"epp,openai" help:"Error bodies: the real EPP's text, or OpenAI's JSON."`

	Seed    uint64   `help:"Key of all random choices."`
	Ignored []string `arg:"" optional:"" hidden:"" help:"Accepted and ignored, as by the real EPP."`

	Record string `placeholder:"FILE" help:"Record the picker's inputs and decisions; compressed if FILE ends in .gz."`

	RecordMaxBytes string `default:"256MiB" placeholder:"SIZE" help:"Longest file. A longer one is renamed to FILE.1."`
	RecordFiles    int    `default:"4" placeholder:"N" help:"The most files, with FILE."`
	RecordBodies   bool   `help:"Record requests' bodies, and not only what plug-ins compare."`

	DecisionsKept int `name:"decisions" default:"1000" help:"How many decisions /debug/decisions remembers."`

	// Elected makes the picker wait for its Lead. Beside, if not nil, gets the running picker.
	Elected bool                          `kong:"-"`
	Beside  func(s *epp.Standalone) error `kong:"-"`
}

func (EPP) Help() string {
	return `llm-d's endpoint picker by itself, with the flags of the real one. A flag without a meaning here is
accepted, and logged once. A flag that protects something (--metrics-endpoint-auth) acts or is refused.

  windtunnel epp --pool-name my-pool --config-file epp.yaml --secure-serving=false

Endpoints come from the file of the configuration's file-discovery plug-in, or from the pods in --objects, a
directory of the objects that a Kubernetes API server would serve: the InferencePool, its Pods,
InferenceObjectives and InferenceModelRewrites. Changes are applied (of the file, with watchFile). A changed
configuration is applied without losing a request; an invalid one is refused and logged.

  windtunnel epp --pool-name my-pool --objects ./manifests --secure-serving=false

With --hold the requests of the pool are held open, as in a scenario with flow: held. Part 1 of a request is
sent at once, and part 2 after the first token:

  windtunnel epp --pool-name my-pool --config-file epp.yaml --secure-serving=false --hold

With --record a file has all inputs and decisions, for a test, for explain and preview at a time in the past,
and to ask another configuration:

  windtunnel epp --pool-name my-pool --config-file epp.yaml --record epp.ndjson
  windtunnel replay epp.ndjson.2 epp.ndjson.1 epp.ndjson --through-core

Without Kubernetes, --metrics-endpoint-auth authenticates by --metrics-token-file or --metrics-client-ca-file.`
}

// Run serves until an interruption.
func (c *EPP) Run(o *console.Console) error {
	gc.Pick()
	defer gc.Serve()
	log, err := newLog(o.Stderr, c.Verbosity, c.Zap, c.ZapLevel)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if err := c.pool(); err != nil {
		return exit.With(exit.Usage, err)
	}
	for _, flag := range c.withoutEffect() {
		log.Info("epp: a flag that has no effect here", "flag", flag)
	}
	opts, err := c.options(log)
	if err != nil {
		return exit.ByCause(exit.Usage, err)
	}
	if opts.MetricsFor == epp.LocalReaders {
		log.Info("epp: /metrics is served to this machine alone; --metrics-token-file, --metrics-client-ca-file or " +
			"--metrics-endpoint-auth=false let others read it")
	}
	switch {
	case c.ConfigText != "" && c.ConfigFile != "":
		return exit.Errorf(exit.Usage, "--config-file and --config-text cannot be given at the same time")
	case c.ConfigText != "":
		opts.Config, opts.ConfigName = []byte(c.ConfigText), "--config-text"
	case c.ConfigFile != "":
		text, err := files.Read(c.ConfigFile, strictyaml.MaxBytes)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		opts.Config, opts.ConfigName, opts.ConfigPath = text, c.ConfigFile, c.ConfigFile
	case c.Objects == "":
		return exit.Errorf(exit.Usage, "--config-file or --objects is required: without Kubernetes the endpoints "+
			"come from a file that the one names, or from the other")
	}
	if opts.Predictor, err = predictorService(o.Env); err != nil {
		return exit.With(exit.Usage, err)
	}
	opts.Origin, opts.Elected = time.Now(), c.Elected
	sender, err := c.Alone(o, c.Tracing, opts.Origin)
	if err != nil {
		return err
	}
	defer sender.End(o)
	hold := &opts.Picking.Stream
	hold.Recorder, hold.Trace = sender.Recorder(), sender.Trace()
	opts.Picking.Explain = record.Explained(hold.Recorder)
	recording, err := c.record(&opts)
	if err != nil {
		return err
	}
	s, err := epp.StartStandalone(opts)
	if err != nil {
		log.Error("epp: not started", "error", err.Error())
		return errors.Join(exit.ByCause(exit.Input, err), recording())
	}
	fmt.Fprintf(o.Stderr, "windtunnel epp: ext_proc on %s, health on %s, metrics on %s\n", s.Addr(), s.HealthAddr(),
		s.MetricsAddr())
	if c.Beside != nil {
		if err := c.Beside(s); err != nil {
			s.Kill()
			return errors.Join(err, recording())
		}
	}
	ctx, stop := o.Context()
	defer stop()
	return errors.Join(serve.Until(ctx, c.DrainTimeout, s.Failed(), s.Stop), recording())
}

// options returns the options of the flags, without the configuration.
func (c *EPP) options(log *slog.Logger) (epp.StandaloneOptions, error) {
	opts := epp.StandaloneOptions{
		PickerOptions: epp.PickerOptions{AllowExperimental: c.AllowExperimental, IgnoreSubset: c.DisableSubset,
			RefreshMetrics: c.RefreshMetricsInterval, Seed: c.Seed, History: c.DecisionsKept, Log: log},
		PoolOptions:  epp.PoolOptions{PoolName: c.PoolName, Namespace: c.PoolNamespace, Objects: c.Objects},
		Serving:      epp.Serving{StreamMetrics: c.EnableStreamMetrics},
		Certificates: epp.Certificates{Secure: c.SecureServing}, BuildInfo: version.Text(), Profiling: c.EnablePprof}
	opts.Picking.EmitScores, opts.Picking.DocumentHeaders, opts.Picking.ExplainHeaders = c.EmitEndpointScores,
		c.PodHeaders, c.ExplainHeaders
	if err := c.take(&opts, c.MetricsAuth); err != nil {
		return opts, err
	}
	body, err := c.limits()
	if err != nil {
		return opts, err
	}
	if c.Held && c.HoldLimit <= 0 {
		return opts, fmt.Errorf("--hold-limit %v: expected a duration above 0", c.HoldLimit)
	}
	opts.Picking.Stream = stream.Config{MaxBodyBytes: 64 << 20, BodyIdle: machine.FromDuration(body.Idle),
		BodyTotal: machine.FromDuration(body.Total), Hold: c.Held, LosePart2: c.LosePart2,
		HoldLimit: machine.FromDuration(c.HoldLimit), MetadataBytes: heldMetadataBytes, Seed: c.Seed}
	if c.EndpointSelector != "" {
		selector, err := picker.ParseSelector(c.EndpointSelector)
		if err != nil {
			return opts, fmt.Errorf("--endpoint-selector: %w", err)
		}
		opts.Selector, opts.TargetPorts = selector, c.EndpointTargetPorts
	}
	if c.Errors == "epp" {
		opts.Picking.Stream.Errors = stream.EPPErrors
	}
	at := func(port int) string { return net.JoinHostPort(c.Listen, strconv.Itoa(port)) }
	opts.Address, opts.HealthAddress, opts.MetricsAddress = at(c.GRPCPort), at(c.GRPCHealthPort), at(c.MetricsPort)
	return opts, nil
}

// record begins the log of inputs with --record. The caller must call end.
func (c *EPP) record(o *epp.StandaloneOptions) (end func() error, err error) {
	if c.Record == "" {
		return func() error { return nil }, nil
	}
	most, err := messageSize("--record-max-bytes", c.RecordMaxBytes)
	switch {
	case err != nil:
		return nil, exit.With(exit.Usage, err)
	case most < 1<<16:
		return nil, exit.Errorf(exit.Usage, "--record-max-bytes: found %s; expected at least 64KiB", c.RecordMaxBytes)
	case c.RecordFiles < 1 || c.RecordFiles > 1000:
		return nil, exit.Errorf(exit.Usage, "--record-files: found %d; expected from 1 to 1000", c.RecordFiles)
	case files.Same(c.ConfigFile, c.Record):
		return nil, exit.Errorf(exit.Usage, "--record %s: this is the configuration, which the recording would "+
			"overwrite; choose another file", c.Record)
	}
	to, err := recording.CreateInputFiles(c.Record, int64(most), c.RecordFiles)
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--record: %w", err)
	}
	o.Picking.Inputs = epp.NewInputLog(
		epp.InputLogOptions{Inputs: report.Inputs{To: to, Bodies: c.RecordBodies, Version: version.Text()}, Log: o.Log})
	return func() error { return errors.Join(o.Picking.Inputs.Close(), to.Close()) }, nil
}

// heldMetadataBytes is the length of part 2's metadata, the default of a scenario.
const heldMetadataBytes = 32

// pool checks the name of the pool. With a selector instead of a pool, it is the name of the picker's own Deployment,
// from its pod's name.
func (c *EPP) pool() error {
	c.PoolNamespace = cmp.Or(c.PoolNamespace, os.Getenv("NAMESPACE"), "default")
	switch {
	case (c.EndpointSelector == "") == (c.PoolName == ""):
		return errors.New("--pool-name or --endpoint-selector is required, and not both")
	case c.EndpointSelector == "":
		return nil
	case c.Objects == "":
		return errors.New("--endpoint-selector selects among the pods of --objects, which is not given")
	}
	slices.Sort(c.EndpointTargetPorts)
	c.EndpointTargetPorts = slices.Compact(c.EndpointTargetPorts)
	if n := len(c.EndpointTargetPorts); n < 1 || n > 8 {
		return fmt.Errorf("--endpoint-target-ports: from 1 to 8 ports are expected with --endpoint-selector, got %d", n)
	}
	for _, port := range c.EndpointTargetPorts {
		if port < 0 || port > 65535 {
			return fmt.Errorf("--endpoint-target-ports: %d is not a port", port)
		}
	}
	parts := strings.Split(os.Getenv("POD_NAME"), "-")
	if len(parts) < 3 {
		return fmt.Errorf("--endpoint-selector needs the environment's POD_NAME, as <deployment>-<hash>-<id>; it is %q",
			os.Getenv("POD_NAME"))
	}
	c.PoolName = strings.Join(parts[:len(parts)-2], "-")
	return nil
}
