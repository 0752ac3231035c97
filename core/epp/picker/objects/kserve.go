package objects

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// KServe has the fields that only document 003's pool has.
type KServe struct {
	ModelName        string
	RoutingType      string             // routingPolicy.type
	SchedulerProfile string             // routingPolicy.schedulerProfile
	Algorithm        string             // routingPolicy.loadBalancing.algorithm
	Weights          map[string]float64 // cache_hit, load, latency

	Disaggregation Disaggregation
	Health         Health
	MinReplicas    int64
	MaxReplicas    int64
	ScaleTargets   map[string]float64 // autoscaling.targetMetrics by type
}

// Disaggregation distinguishes prefill pods from decode pods.
type Disaggregation struct {
	Enabled         bool
	Prefill, Decode picker.Selector
	Connector       string // as core/sidecar/connector names it; "" if not given
	Transfer        Transfer
}

// Transfer is connector.config: how KV caches are transferred.
type Transfer struct {
	Compressed bool
	// RDMA and NoRDMA are rdmaEnabled; neither if it is not given.
	RDMA, NoRDMA bool
	// FirstPort to LastPort are the servers' side channels (sideChannelPortRange), 0 if not given.
	FirstPort, LastPort int
	// Unknown are the unknown fields.
	Unknown []string
}

// read reads connector.config with document 003's fields.
func (t *Transfer) read(v value) {
	for _, p := range v.Pairs() {
		switch {
		case !p.Given():
		case p.Name == "compressionEnabled":
			t.Compressed = p.Bool()
		case p.Name == "rdmaEnabled":
			t.RDMA = p.Bool()
			t.NoRDMA = !t.RDMA
		case p.Name == "sideChannelPortRange":
			first, last, ranged := strings.Cut(p.Scalar(), "-")
			if !ranged {
				last = first
			}
			a, wrong := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
			b, wrong2 := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
			if wrong != nil || wrong2 != nil || a == 0 || b < a {
				p.Fail(p.Found(), "two ports, the lower one first, such as 5555-5556", "")
				continue
			}
			t.FirstPort, t.LastPort = int(a), int(b)
		default:
			t.Unknown = append(t.Unknown, p.Name)
		}
	}
}

// check refuses settings that a connector does not support, by document 003's comparison.
func (t *Transfer) check(c *connector.Connector, v value) {
	if t.Compressed && c == connector.NIXLv1 {
		v.Get("compressionEnabled").Fail("true with connector "+c.Name+", which does not compress",
			"connector type "+connector.NIXLv2.Name, "")
	}
	if t.RDMA && c.Profile.NoRDMA {
		v.Get("rdmaEnabled").Fail("true with connector "+c.Name+", which goes by TCP",
			"connector type "+connector.NIXLv2.Name, "")
	}
}

// Health configures the health probes of the pool's pods.
type Health struct {
	Enabled                              bool
	Endpoint                             string        // a path
	Interval, Timeout                    time.Duration // 10 s and 5 s by default
	UnhealthyThreshold, HealthyThreshold int64         // 3 and 2 by default
}

// Pickers maps the algorithms of routingPolicy.loadBalancing to plug-in types. By the weighted scores, requests are
// spread over the endpoints in proportion to their totals or go to the best endpoint; or they go to each endpoint in
// turn.
var Pickers = map[string]string{
	"weighted_round_robin": "weighted-random-picker",
	"max_score":            "max-score-picker",
	"round_robin":          "round-robin-picker",
}

// known adds the fields that only KServe's pools have.
func (k *KServe) known(spec map[string]func(value)) {
	spec["modelName"] = func(v value) { k.ModelName = v.Text() }
	spec["routingPolicy"] = func(v value) {
		v.Fields(map[string]func(value){
			"type": func(v value) {
				if k.RoutingType = v.Text(); !strings.EqualFold(k.RoutingType, "Dynamic") {
					v.Fail(v.Found(), "Dynamic: the endpoint picker decides for each request", "")
				}
			},
			"schedulerProfile": func(v value) { k.SchedulerProfile = v.Text() },
			"loadBalancing": func(v value) {
				v.Fields(map[string]func(value){
					"algorithm": func(v value) {
						if k.Algorithm = v.Text(); Pickers[k.Algorithm] == "" {
							v.Fail(v.Found(), "one of "+strings.Join(slices.Sorted(maps.Keys(Pickers)), ", "), "")
						}
					},
					"weights": func(v value) {
						k.Weights = map[string]float64{}
						for _, p := range v.Pairs() {
							w := p.Float()
							switch {
							case p.Name != "cache_hit" && p.Name != "load" && p.Name != "latency":
								p.Fail(p.Name, "cache_hit, load or latency",
									strictyaml.DidYouMean(p.Name, []string{"cache_hit", "load", "latency"}))
							case !(w >= 0 && w <= 1e9):
								p.Fail(p.Found(), "a number from 0 to 1e9", "")
							}
							k.Weights[p.Name] = w
						}
					},
				})
			},
		})
	}
	spec["disaggregation"] = func(v value) {
		d := &k.Disaggregation
		v.Fields(map[string]func(value){
			"enabled":         func(v value) { d.Enabled = v.Bool() },
			"prefillSelector": func(v value) { d.Prefill = readSelector(v, false) },
			"decodeSelector":  func(v value) { d.Decode = readSelector(v, false) },
			"connector": func(v value) {
				v.Fields(map[string]func(value){
					"type": func(v value) {
						c, err := connector.Named(v.Text())
						if err != nil {
							v.Fail(err.Error(), "", "")
							return
						}
						d.Connector = c.Name
					},
					"config": func(v value) { d.Transfer.read(v) },
				})
				if c, err := connector.Named(cmp.Or(d.Connector, connector.NIXLv2.Name)); err == nil {
					d.Transfer.check(c, v.Get("config"))
				}
			},
		})
	}
	spec["healthCheck"] = func(v value) {
		h := &k.Health
		*h = Health{Endpoint: "/health", Interval: 10 * time.Second, Timeout: 5 * time.Second, UnhealthyThreshold: 3,
			HealthyThreshold: 2}
		duration := func(to *time.Duration) func(value) {
			return func(v value) {
				d, err := time.ParseDuration(v.Scalar())
				if err != nil || d < 10*time.Millisecond || d > time.Hour {
					v.Fail(v.Found(), "a time from 10ms to 1h, such as 10s", "")
					return
				}
				*to = d
			}
		}
		v.Fields(map[string]func(value){
			"enabled": func(v value) { h.Enabled = v.Bool() },
			"endpoint": func(v value) {
				if h.Endpoint = v.Text(); !strings.HasPrefix(h.Endpoint, "/") {
					v.Fail(v.Found(), "a path, such as /health", "")
				}
			},
			"interval":           duration(&h.Interval),
			"timeout":            duration(&h.Timeout),
			"unhealthyThreshold": func(v value) { h.UnhealthyThreshold = v.Int(1, 1000, 3) },
			"healthyThreshold":   func(v value) { h.HealthyThreshold = v.Int(1, 1000, 2) },
		})
	}
	spec["autoscaling"] = func(v value) {
		v.Fields(map[string]func(value){
			"minReplicas": func(v value) { k.MinReplicas = v.Int(0, 1e6, 0) },
			"maxReplicas": func(v value) { k.MaxReplicas = v.Int(0, 1e6, 0) },
			"targetMetrics": func(v value) {
				k.ScaleTargets = map[string]float64{}
				for _, e := range v.List() {
					k.ScaleTargets[e.Mapping().Get("type").Text()] = e.Get("target").Float()
				}
			},
		})
	}
}

// Roles returns a pod's labels with the role from document 003's prefillSelector and decodeSelector, unless a label has
// one.
func (p *Pool) Roles(labels map[string]string) map[string]string {
	if p.KServe == nil || !p.KServe.Disaggregation.Enabled || labels[picker.LabelRole] != "" {
		return labels
	}
	d := &p.KServe.Disaggregation
	role := ""
	switch {
	case len(d.Prefill) > 0 && d.Prefill.Matches(labels):
		role = "prefill"
	case len(d.Decode) > 0 && d.Decode.Matches(labels):
		role = "decode"
	default:
		return labels
	}
	out := maps.Clone(labels)
	out[picker.LabelRole] = role
	return out
}

// Routing reports whether the pool's routingPolicy has any setting.
func (k *KServe) Routing() bool {
	return k != nil && (k.RoutingType+k.SchedulerProfile+k.Algorithm != "" || len(k.Weights) > 0)
}

// Idle returns the given fields that have no effect.
func (k *KServe) Idle() (out []string) {
	if k == nil {
		return nil
	}
	if d := &k.Disaggregation; !d.Enabled && (d.Connector != "" || !reflect.ValueOf(d.Transfer).IsZero()) {
		out = append(out, "disaggregation.connector without disaggregation.enabled")
	} else {
		for _, name := range d.Transfer.Unknown {
			out = append(out, "disaggregation.connector.config."+name)
		}
	}
	if k.MaxReplicas == 0 && (k.MinReplicas > 0 || len(k.ScaleTargets) > 0) {
		out = append(out, "autoscaling without maxReplicas")
	}
	return out
}
