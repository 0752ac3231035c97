package sidecar

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Ports of the documents (003: 8000 in front of 8001) and of today's
// pd-sidecar (8000 in front of 8200).
const (
	defaultMaxBody     = 64 << 20
	defaultIdlePerHost = 1024
	maxLegAnswer       = 64 << 20
	proxyCache         = 16 // document 003: prefiller proxies kept
	resolveTimeout     = 5 * time.Second
	bootstrapTimeout   = 5 * time.Second // mooncake's /query
	metricsTimeout     = 5 * time.Second
	maxWorkerMetrics   = 16 << 20
)

// Options of a sidecar.
type Options struct {
	// Listen is where it listens, host:port; port 0 takes a free one. With
	// Ranks, rank i listens on the port above by i.
	Listen string
	// Advertise is the host that others are told; empty is the one of Listen, or
	// where that is a wildcard Disagg.PodIP, or the machine's first address.
	Advertise string
	// Decoder is the decode server, host:port; rank i's has the port above by i.
	Decoder string
	// Ranks is pd-sidecar's --data-parallel-size; 0 is 1.
	Ranks int
	// Disagg is how requests are served. Seed, Recorder, Endpoint, Lock, Allow,
	// Engines and the ports of the ranks are filled in here.
	Disagg disagg.Config
	// SessionCache, when above 0, turns on document 002's session mode with an
	// LRU of this size.
	SessionCache int
	// Prefillers are where session mode prefills when a request names nobody,
	// as host:port or URL: document 002's --prefill-url.
	Prefillers []string
	// Protect refuses prefillers that are not in the pool (SSRF protection).
	// The pool is then read from EndpointsFile or Objects, or given as Allow.
	Protect bool
	// EndpointsFile is the pool, in the format of the EPP's file-discovery
	// plug-in; it is followed as it changes. In session mode its endpoints with
	// the label llm-d.ai/role prefill are the prefillers.
	EndpointsFile string
	// Objects, in place of EndpointsFile, is a directory of Kubernetes objects
	// with the InferencePool called PoolName and its pods; it is followed too.
	Objects, PoolName string
	// Namespace is the pool's, and that of endpoints and objects that name none.
	Namespace string
	// Allow is the pool where there is neither EndpointsFile nor Objects.
	Allow []netip.AddrPort

	TLS
	// MaxIdlePerHost bounds idle connections to one server; 0 is 1024.
	MaxIdlePerHost int
	// MaxBodyBytes bounds a request's body; 0 is 64 MiB. A larger one is answered
	// with 413.
	MaxBodyBytes int64
	// Body limits the time that a request's body takes.
	Body serve.BodyLimits
	// MetricsListen is where the sidecar's own metrics are served by themselves,
	// host:port; empty serves them only beside the decode server's.
	MetricsListen string
	// Peers are what MoRI-IO's legs name: names or addresses. Names are resolved
	// at the start and again when ResolveTTL has passed; a look-up may take
	// ResolveTimeout. Zero is 30 s and 5 s.
	Peers                      connector.MoRIIOPeers
	ResolveTTL, ResolveTimeout time.Duration

	// BlockBytes is the size of one KV block, for the transfer's metric; 0 does
	// not count bytes.
	BlockBytes int64
	// DecoderHealth has /health tell of the decode server (document 003, docs/documents.md), and not
	// of the sidecar alone.
	DecoderHealth bool
	// PlainHeaders leaves document 003's x-…-time-ms out of answers.
	PlainHeaders bool
	// PodName is told in x-decode-pod; empty tells nothing.
	PodName string

	// Seed keys made-up ids. Zero draws one.
	Seed uint64
	// Now is the run's clock; nil counts from Start.
	Now func() machine.Time
	// Recorder takes the flow events of the hop "sidecar"; nil records nothing.
	Recorder record.Recorder
	// Log hears decisions and errors; nil is silent.
	Log *slog.Logger
}

// TLS is how the sidecar and the legs' servers are reached.
type TLS struct {
	Serve                          ServeTLS
	Prefiller, DecoderTLS, Encoder LegTLS
	// CAFile holds the certificates that sign the legs' servers, beside the
	// system's; it is read again when it changes.
	CAFile string
}

// ServeTLS is how the sidecar itself is reached.
type ServeTLS struct {
	// On serves HTTPS.
	On bool
	// CertPath is a directory with tls.crt and tls.key, read again when they
	// change; empty makes a certificate that nobody has signed.
	CertPath string
}

// LegTLS is how a leg's server is reached.
type LegTLS struct {
	// On uses HTTPS where the target has no scheme.
	On bool
	// Skip takes any certificate.
	Skip bool
}

// offsetPort is host:port with the port higher by n. Port 0 stays.
func offsetPort(address string, n int) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q: %w; expected HOST:PORT", address, err)
	}
	p, err := strconv.Atoi(port)
	if err != nil || p < 0 || p+n > 65535 {
		return "", fmt.Errorf("%q: the port is not between 0 and 65535", address)
	}
	if p > 0 {
		p += n
	}
	return net.JoinHostPort(host, strconv.Itoa(p)), nil
}
