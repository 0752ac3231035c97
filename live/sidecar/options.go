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

// Ports of the documents (003: 8000 in front of 8001) and of the current pd-sidecar (8000 in front of 8200).
const (
	defaultMaxBody     = 64 << 20
	defaultIdlePerHost = 1024
	maxLegAnswer       = 64 << 20
	proxyCache         = 16 // document 003: the number of prefiller proxies
	resolveTimeout     = 5 * time.Second
	bootstrapTimeout   = 5 * time.Second // for Mooncake's /query
	metricsTimeout     = 5 * time.Second
	maxWorkerMetrics   = 16 << 20
)

// Options configure a sidecar.
type Options struct {
	// Listen is the address to listen on, host:port; port 0 takes a free one. With Ranks, rank i listens on a port that
	// is i higher.
	Listen string
	// Line holds the connections to Listen; nil: no incident breaks them.
	Line *serve.Line
	// Advertise is the host that the sidecar gives to others. Empty is Listen's host; if that is a wildcard, it is
	// Disagg.PodIP or the machine's first address.
	Advertise string
	// Decoder is the decode server, host:port. The decode server of rank i has a port that is i higher.
	Decoder string
	// Ranks is the value of pd-sidecar's --data-parallel-size; 0 is 1.
	Ranks int
	// Disagg configures how requests are served. Start sets Seed, Recorder, Endpoint, Lock, Allow, Engines and the
	// ports of the ranks.
	Disagg disagg.Config
	// SessionCache, if above 0, turns document 002's session mode on, with an LRU cache of this size.
	SessionCache int
	// Prefillers are the prefill servers of session mode for requests that name none, as host:port or URL: document
	// 002's --prefill-url.
	Prefillers []string
	// Protect refuses prefillers that are not in the pool (SSRF protection). The pool then comes from EndpointsFile,
	// Objects or Allow.
	Protect bool
	// EndpointsFile is the pool, in the format of the EPP's file-discovery plug-in. The sidecar follows its changes. In
	// session mode, its endpoints with the label llm-d.ai/role prefill are the prefillers.
	EndpointsFile string
	// Objects, instead of EndpointsFile, is a directory of Kubernetes objects with the InferencePool PoolName and its
	// pods. The sidecar follows its changes, too.
	Objects, PoolName string
	// Namespace is the pool's namespace, and the default for endpoints and objects without one.
	Namespace string
	// Allow is the pool if there is neither EndpointsFile nor Objects.
	Allow []netip.AddrPort

	TLS
	// MaxIdlePerHost limits idle connections to one server; 0 is 1024.
	MaxIdlePerHost int
	// MaxBodyBytes limits a request's body; 0 is 64 MiB. The sidecar answers a larger one with 413.
	MaxBodyBytes int64
	// Body limits the time for a request's body.
	Body serve.BodyLimits
	// MetricsListen is the address that serves the sidecar's metrics alone, host:port. Empty serves them only together
	// with the decode server's.
	MetricsListen string
	// Peers are the names or addresses that MoRI-IO's legs carry. The sidecar resolves names at the start, and again
	// after ResolveTTL. A look-up may take ResolveTimeout. Zero is 30 s and 5 s.
	Peers                      connector.MoRIIOPeers
	ResolveTTL, ResolveTimeout time.Duration

	// BlockBytes is the size of one KV block, for the transfer metric; with 0, the metric counts no bytes.
	BlockBytes int64
	// DecoderHealth makes /health report the decode server's state (document 003, docs/documents.md), not only the
	// sidecar's.
	DecoderHealth bool
	// PlainHeaders omits document 003's x-…-time-ms headers from answers.
	PlainHeaders bool
	// PodName is the value of x-decode-pod; with an empty name, the header is omitted.
	PodName string

	// Seed determines generated ids. Zero draws a seed.
	Seed uint64
	// Now returns the run's time; nil counts from Start.
	Now func() machine.Time
	// Recorder receives the flow events of the hop "sidecar"; nil records nothing.
	Recorder record.Recorder
	// Log logs decisions and errors; nil is silent.
	Log *slog.Logger
}

// TLS configures connections to the sidecar and to the legs' servers.
type TLS struct {
	Serve                          ServeTLS
	Prefiller, DecoderTLS, Encoder LegTLS
	// CAFile has the certificates that sign those of the legs' servers, in addition to the system's. The sidecar reads
	// it again when it changes.
	CAFile string
}

// ServeTLS configures the sidecar's own ports.
type ServeTLS struct {
	// On serves HTTPS.
	On bool
	// CertPath is a directory with tls.crt and tls.key. The sidecar reads them again when they change. Empty generates
	// a self-signed certificate.
	CertPath string
}

// LegTLS configures connections to a leg's server.
type LegTLS struct {
	// On uses HTTPS if the target has no scheme.
	On bool
	// Skip accepts any certificate.
	Skip bool
}

// offsetPort returns host:port with the port increased by n. Port 0 stays 0.
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
