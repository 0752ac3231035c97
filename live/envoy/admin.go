package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/live/serve"
)

// maxAdminBytes limits one page; a config dump of many pods has a few megabytes.
const maxAdminBytes = 64 << 20

// admin is a client of Envoy's admin interface.
type admin struct {
	base string
	http *http.Client
}

func newAdmin(addr string) *admin {
	return &admin{
		base: "http://" + addr,
		http: &http.Client{
			Timeout: 10 * time.Second,
			// Its own transport does not use a proxy from the environment, and its idle connections end with the
			// process.
			Transport: &http.Transport{MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second},
		},
	}
}

func (a *admin) close() { a.http.CloseIdleConnections() }

// get stores the JSON of a page in into.
func (a *admin) get(ctx context.Context, path string, into any) error {
	if err := serve.FetchJSON(ctx, a.http, http.MethodGet, a.base+path, nil, maxAdminBytes, into); err != nil {
		return fmt.Errorf("Envoy's admin interface: %w", err)
	}
	return nil
}

func (a *admin) do(ctx context.Context, method, path string) ([]byte, error) {
	body, err := serve.Fetch(ctx, a.http, method, a.base+path, nil, maxAdminBytes)
	if err != nil {
		return nil, fmt.Errorf("Envoy's admin interface: %w", err)
	}
	return body, nil
}

func (a *admin) ready(ctx context.Context) bool {
	body, err := a.do(ctx, http.MethodGet, "/ready")
	return err == nil && strings.Contains(string(body), "LIVE")
}

// address is an address in the pages' JSON.
type address struct {
	Socket struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	} `json:"socket_address"`
}

func (a *address) String() string {
	return net.JoinHostPort(a.Socket.Address, strconv.Itoa(a.Socket.Port))
}

// listener returns the address that a listener is actually bound to.
func (a *admin) listener(ctx context.Context, name string) (string, error) {
	var page struct {
		Statuses []struct {
			Name  string  `json:"name"`
			Local address `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := a.get(ctx, "/listeners?format=json", &page); err != nil {
		return "", err
	}
	for _, s := range page.Statuses {
		if s.Name == name && s.Local.Socket.Port != 0 {
			return s.Local.String(), nil
		}
	}
	return "", fmt.Errorf("Envoy's /listeners: no listener named %s yet", name)
}

// Stats are counters and gauges by name, all from the same moment.
type Stats map[string]uint64

// Stats returns the counters and gauges whose names begin with prefix; an empty prefix returns all of them. It leaves
// histograms out.
func (p *Process) Stats(ctx context.Context, prefix string) (Stats, error) {
	query := url.Values{"format": {"json"}, "histogram_buckets": {"disjoint"}}
	if prefix != "" {
		query.Set("filter", "^"+regexp.QuoteMeta(prefix))
	}
	var page struct {
		Stats []struct {
			Name  string          `json:"name"`
			Value json.RawMessage `json:"value"`
		} `json:"stats"`
	}
	if err := p.admin.get(ctx, "/stats?"+query.Encode(), &page); err != nil {
		return nil, err
	}
	stats := Stats{}
	for _, s := range page.Stats {
		// A text value has quotes and does not parse; a histogram has no name.
		if n, err := strconv.ParseUint(string(s.Value), 10, 64); err == nil && s.Name != "" {
			stats[s.Name] = n
		}
	}
	return stats, nil
}

// Active is Envoy's current activity. All its values are zero once every request has ended, however it ended.
type Active struct {
	// Requests are the clients' open requests.
	Requests uint64
	// Upstream are attempts in flight to model servers, over all pools. Pending are attempts that wait for a
	// connection.
	Upstream, Pending uint64
	// Streams are open ext_proc streams to pickers.
	Streams uint64
}

// Active reads the activity gauges.
func (p *Process) Active(ctx context.Context) (Active, error) {
	stats, err := p.Stats(ctx, "")
	if err != nil {
		return Active{}, err
	}
	a := Active{Requests: stats["http."+listenerName+".downstream_rq_active"]}
	for name, n := range stats {
		cluster, is := strings.CutPrefix(name, "cluster.")
		pending := strings.HasSuffix(name, ".upstream_rq_pending_active")
		switch {
		case !is, !pending && !strings.HasSuffix(name, ".upstream_rq_active"),
			strings.HasPrefix(cluster, controlName+"."):
		case strings.HasPrefix(cluster, "picker"), strings.HasPrefix(cluster, bodyRouterName):
			a.Streams += n
		case pending:
			a.Pending += n
		default:
			a.Upstream += n
		}
	}
	return a, nil
}

// Idle reports whether nothing is in flight.
func (a Active) Idle() bool { return a == Active{} }

// ConfigDump returns Envoy's own dump of its configuration, as JSON.
func (p *Process) ConfigDump(ctx context.Context) ([]byte, error) {
	return p.admin.do(ctx, http.MethodGet, "/config_dump?include_eds")
}

// Drain closes the listeners to new connections and lets requests in flight end. It returns when none is left or ctx
// ends.
func (p *Process) Drain(ctx context.Context) error {
	left, err := p.Active(ctx)
	if err != nil {
		return err
	}
	stillBusy := func() error {
		return fmt.Errorf("requests still in flight at the gateway: %d: %w", left.Requests, ctx.Err())
	}
	if _, err := p.admin.do(ctx, http.MethodPost, "/drain_listeners"); err != nil {
		if ctx.Err() != nil { // ctx ended before Envoy had answered
			return stillBusy()
		}
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if a, err := p.Active(ctx); err == nil {
			if left = a; left.Idle() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return stillBusy()
		case <-p.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Ejected returns, by cluster, the endpoints (ip:port) that outlier detection has ejected and those that have failed
// their health checks.
func (p *Process) Ejected(ctx context.Context) (map[string][]string, error) {
	var page struct {
		Clusters []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Address address `json:"address"`
				Health  struct {
					Ejected bool `json:"failed_outlier_check"`
					Failed  bool `json:"failed_active_health_check"`
				} `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := p.admin.get(ctx, "/clusters?format=json", &page); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, c := range page.Clusters {
		for _, h := range c.Hosts {
			if h.Health.Ejected || h.Health.Failed {
				out[c.Name] = append(out[c.Name], h.Address.String())
			}
		}
	}
	return out, nil
}
