package parts

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/serve"
)

// eppServing are the real EPP's flags about TLS and gRPC.
type eppServing struct {
	CertPath       string   `placeholder:"DIR" help:"Directory with tls.crt and tls.key, else one is generated."`
	CertReload     bool     `name:"enable-cert-reload" help:"Reload a certificate that changes."`
	TLSMinVersion  string   `placeholder:"VERSION" help:"Least TLS version of ext_proc: VersionTLS12 or VersionTLS13."`
	CipherSuites   []string `name:"tls-cipher-suites" placeholder:"NAME" help:"Cipher suites of ext_proc below TLS 1.3, by Go's names."`
	MaxRecvMessage string   `name:"grpc-max-recv-msg-size" placeholder:"SIZE" help:"Longest gRPC message to receive, such as 10MiB."`
	MaxSendMessage string   `name:"grpc-max-send-msg-size" placeholder:"SIZE" help:"Longest gRPC message to send, such as 10MiB."`
	MetricsCertDir string   `placeholder:"DIR" help:"Directory with tls.crt and tls.key: serve /metrics over TLS."`
	MetricsTokens  string   `name:"metrics-token-file" placeholder:"FILE" help:"Bearer tokens, one a line, that readers of /metrics must have."`
	MetricsCA      string   `name:"metrics-client-ca-file" placeholder:"FILE" help:"PEM authorities that sign the certificates of readers of /metrics."`
}

// take sets the options of the flags.
func (c *eppServing) take(o *epp.StandaloneOptions, authenticate *bool) (err error) {
	o.CertPath, o.CertReload = c.CertPath, c.CertReload
	o.MetricsCertPath, o.MetricsClientCA = c.MetricsCertDir, c.MetricsCA
	known := c.MetricsTokens != "" || c.MetricsCA != ""
	switch {
	case authenticate != nil && !*authenticate:
		o.MetricsFor = epp.AllReaders
	case known:
		o.MetricsFor = epp.KnownReaders
	case authenticate != nil:
		return errors.New("--metrics-endpoint-auth: there is no Kubernetes here that reviews tokens: give " +
			"--metrics-token-file, or --metrics-client-ca-file with --metrics-cert-dir")
	}
	if c.MetricsTokens != "" {
		if o.MetricsTokens, err = serve.ReadTokens(c.MetricsTokens); err != nil {
			return fmt.Errorf("--metrics-token-file: %w", err)
		}
	}
	if c.MetricsCertDir != "" && !known && o.MetricsFor == epp.AllReaders {
		return errors.New("--metrics-cert-dir without --metrics-endpoint-auth needs --metrics-client-ca-file: TLS " +
			"alone cannot distinguish clients")
	}
	if c.MetricsCA != "" && c.MetricsCertDir == "" {
		return errors.New("--metrics-client-ca-file requires --metrics-cert-dir")
	}
	if c.TLSMinVersion != "" {
		v, known := map[string]uint16{"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
			"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}[c.TLSMinVersion]
		if !known {
			return fmt.Errorf("--tls-min-version: %q is not VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
				c.TLSMinVersion)
		}
		o.TLSMinVersion = v
	}
	suites := map[string]uint16{}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		suites[s.Name] = s.ID
	}
	for _, name := range c.CipherSuites {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		id, known := suites[name]
		if !known {
			return fmt.Errorf("--tls-cipher-suites: %q is not the name of a cipher suite, such as "+
				"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", name)
		}
		o.TLSCipherSuites = append(o.TLSCipherSuites, id)
	}
	if o.MaxRecvBytes, err = messageSize("--grpc-max-recv-msg-size", c.MaxRecvMessage); err != nil {
		return err
	}
	o.MaxSendBytes, err = messageSize("--grpc-max-send-msg-size", c.MaxSendMessage)
	return err
}

// messageSize parses 10MiB, 25MB or 4096; "" is 0, the default.
func messageSize(flag, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	text = strings.TrimSpace(text)
	if n := len(text); n > 1 && (text[n-1] == 'B' || text[n-1] == 'b') {
		text = text[:n-1]
	}
	v, err := config.ParseQuantity(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", flag, err)
	case v < 0 || v == math.MaxInt64:
		return 0, fmt.Errorf("%s: %s is not a size", flag, text)
	}
	return int(v), nil
}

// eppLogging are the real EPP's further flags about its log.
type eppLogging struct {
	ZapLevel string `name:"zap-log-level" placeholder:"LEVEL" help:"debug, info, error, panic or a number as in -v; overrides -v."`
	ZapDevel bool   `default:"true" help:"Accepted."`
	ZapTrace string `name:"zap-stacktrace-level" default:"" enum:",info,error,panic" placeholder:"LEVEL" help:"Accepted; there are no stack traces in the log."`
	ZapTime  string `name:"zap-time-encoding" default:"" enum:",epoch,millis,nano,iso8601,rfc3339,rfc3339nano" placeholder:"FORM" help:"Accepted; times are RFC 3339 with nanoseconds."`
}

// newLog returns a log with the verbosity of the real components' -v, or with a level of --zap-log-level. A negative
// verbosity is the default.
func newLog(w io.Writer, verbosity int, form, level string) (*slog.Logger, error) {
	h := &slog.HandlerOptions{Level: slog.LevelInfo}
	number, err := strconv.Atoi(level)
	switch strings.ToLower(level) {
	case "":
	case "debug":
		verbosity = 4
	case "info":
		verbosity = 2
	case "error", "panic":
		verbosity, h.Level = 2, slog.LevelError
	default:
		if err != nil || number <= 0 {
			return nil, fmt.Errorf("--zap-log-level: %q is not debug, info, error, panic or a number above 0", level)
		}
		verbosity = number
	}
	switch {
	case verbosity == 0, verbosity == 1:
		h.Level = slog.LevelWarn
	case verbosity >= 4:
		h.Level = slog.LevelDebug
	}
	if strings.EqualFold(form, "console") {
		return slog.New(slog.NewTextHandler(w, h)), nil
	}
	return slog.New(slog.NewJSONHandler(w, h)), nil
}

// eppArg rewrites -v=4, which kong does not read.
func eppArg(arg string, _ *console.Console) string {
	if level, ok := strings.CutPrefix(arg, "-v="); ok {
		return "-v" + level
	}
	return arg
}

// withoutEffect returns the given flags that change nothing here.
func (c *EPP) withoutEffect() (flags []string) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"ha-enable-leader-election", c.LeaderElect && !c.Elected},
		{"zap-stacktrace-level", c.ZapTrace != ""},
		{"zap-time-encoding", c.ZapTime != ""},
		{"pool-group", cmp.Or(c.PoolGroup, defaultPoolGroup) != defaultPoolGroup},
		{"zap-devel=false", !c.ZapDevel},
		{"health-checking", c.HealthCheck},
		{"refresh-prometheus-metrics-interval", c.RefreshPrometheusInterval != 5*time.Second},
		{"metrics-staleness-threshold", c.MetricsStaleness != 2*time.Second},
	} {
		if f.given {
			flags = append(flags, "--"+f.name)
		}
	}
	return append(flags, c.Ignored...)
}

// defaultPoolGroup is the group of the InferencePool.
const defaultPoolGroup = "inference.networking.k8s.io"
