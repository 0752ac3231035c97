package upstream

import (
	"math"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
)

// record holds an endpoint's results for outlier detection.
type record struct {
	fives, gateways, locals int // successive failures
	answers, reached        rate
	ejected                 bool
	since                   machine.Time
	times                   int // multiplies its ejection time; falls again while the endpoint is healthy
}

// rate counts an interval's requests, and the successful ones among them.
type rate struct{ all, good int }

// outlier is a policy's outlier detection, with Envoy's defaults for missing fields. A threshold of 0 ejects no
// endpoint.
type outlier struct {
	fives, gateways, locals int
	interval, base, longest time.Duration
	percent                 int
	successRate             int // percentage of ejections that are enforced
	hosts, volume           int
	failures                int
	always                  bool
}

// Envoy's defaults of settings that no policy has.
const (
	longestEjection   = 300 * time.Second
	deviations        = 1.9 // success_rate_stdev_factor
	failureHosts      = 5
	failureVolume     = 50
	shortestOfTimers  = time.Millisecond
	ofAHundred        = 100
	badGateway        = 502
	lowestServerError = 500
)

func span(d *gateway.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return max(time.Duration(*d), shortestOfTimers)
}

func (x *Cluster) outlier() outlier {
	o, or := x.c.Limits.Outlier, gateway.Or
	out := outlier{fives: or(o.Consecutive5xx, 5), gateways: or(o.Gateway, 0), locals: or(o.LocalOrigin, 5),
		interval: span(o.Interval, 10*time.Second), base: span(o.Base, 30*time.Second),
		percent: or(o.MaxPercent, 10), successRate: or(o.SuccessRate, ofAHundred), hosts: or(o.SuccessHosts, 5),
		volume: or(o.SuccessVolume, 100), failures: or(o.FailurePercent, 0), always: o.AlwaysEjectOneHost}
	out.longest = max(longestEjection, out.base)
	return out
}

// answered records an answer's status. A gRPC call counts with the HTTP status for its gRPC status.
func (x *Cluster) answered(h *host, m *Head) {
	status := m.Status
	if m.Code > 0 {
		status = ofCalls[m.Code]
	}
	x.status(h, status)
}

// ofCalls maps gRPC statuses that are the server's failures to Envoy's HTTP statuses.
var ofCalls = map[int]int{2: 500, 4: 504, 12: 501, 13: 500, 14: 503, 15: 500}

// status records the status of an endpoint's answer, or of what counts as its answer.
func (x *Cluster) status(h *host, status int) {
	if x.c.Limits.Outlier == nil {
		return
	}
	h.answers.all++
	if status < lowestServerError {
		h.answers.good++
		h.fives, h.gateways = 0, 0
		return
	}
	o := x.outlier()
	if status >= badGateway && status <= proxy.StatusTimedOut {
		if h.gateways++; h.gateways == o.gateways {
			h.gateways = 0
			x.eject(h, ofAHundred)
		}
	} else {
		h.gateways = 0
	}
	if h.fives++; h.fives == o.fives {
		h.fives = 0
		x.eject(h, ofAHundred)
	}
}

// failed records an attempt without an answer, with Envoy's status for it.
func (x *Cluster) failed(h *host, status int) {
	if o := x.c.Limits.Outlier; o == nil || !o.Split {
		x.status(h, status)
		return
	}
	x.local(h, false)
}

// local records whether an endpoint could be reached, where the policy counts such failures separately.
func (x *Cluster) local(h *host, reached bool) {
	if o := x.c.Limits.Outlier; o == nil || !o.Split {
		return
	}
	h.reached.all++
	if reached {
		h.reached.good++
		h.locals = 0
		return
	}
	if h.locals++; h.locals == x.outlier().locals {
		h.locals = 0
		x.eject(h, ofAHundred)
	}
}

// eject ejects an endpoint, unless that exceeds the highest share of ejected endpoints. percent is the probability of
// the ejection in percent.
func (x *Cluster) eject(h *host, percent int) {
	o := x.outlier()
	if h.ejected || h.gone {
		return
	}
	first := x.ejected == 0 && o.always
	if share := ofAHundred * float64(x.ejected+1) / float64(len(x.hosts)); share > float64(o.percent) && !first {
		return
	}
	x.drawn++
	if d := machine.NewDraw(x.c.Seed, "envoy", "ejection", x.drawn); d.Intn(ofAHundred) >= percent {
		return
	}
	h.ejected, h.since = true, x.now
	if x.ejected++; time.Duration(h.times)*o.base < o.longest+o.base {
		h.times++
	}
	x.reportOut()
}

// judge ends an interval. It returns endpoints whose ejection time is over, and ejects those with worse results than
// the others.
func (x *Cluster) judge() {
	o := x.outlier()
	for _, h := range x.hosts {
		switch {
		case !h.ejected:
			h.times = max(0, h.times-1)
		case x.now-h.since >= machine.FromDuration(min(time.Duration(h.times)*o.base, o.longest)):
			h.ejected = false
			x.ejected--
			h.fives, h.gateways, h.locals = 0, 0, 0
		}
	}
	for _, of := range []func(*host) *rate{func(h *host) *rate { return &h.answers },
		func(h *host) *rate { return &h.reached }} {
		x.compare(o, of)
		for _, h := range x.hosts {
			*of(h) = rate{}
		}
	}
	x.reportOut()
}

// compare ejects the endpoints whose success rate is far below the mean, or that fail too often.
func (x *Cluster) compare(o outlier, of func(*host) *rate) {
	rates := func(volume int) (list []*host) {
		for _, h := range x.hosts {
			if r := of(h); r.all > 0 && r.all >= volume {
				list = append(list, h)
			}
		}
		return list
	}
	percent := func(h *host) float64 { return ofAHundred * float64(of(h).good) / float64(of(h).all) }
	if list := rates(o.volume); o.successRate > 0 && len(list) > 0 && len(list) >= o.hosts {
		sum, squares := 0.0, 0.0
		for _, h := range list {
			sum += percent(h)
		}
		mean := sum / float64(len(list))
		for _, h := range list {
			squares += float64((percent(h) - mean) * (percent(h) - mean))
		}
		threshold := mean - float64(deviations*math.Sqrt(squares/float64(len(list))))
		for _, h := range list {
			if percent(h) < threshold {
				x.eject(h, o.successRate)
			}
		}
	}
	if list := rates(failureVolume); o.failures > 0 && len(list) >= failureHosts {
		for _, h := range list {
			if ofAHundred-percent(h) >= float64(o.failures) {
				x.eject(h, ofAHundred)
			}
		}
	}
}
