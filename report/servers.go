package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// DeploymentInfo describes a group of servers: whether servers come and go, and the price.
type DeploymentInfo struct {
	// Deployment is the name of the group in events.
	Deployment string
	// Replicas is how many servers there are at the begin.
	Replicas int
	// Lives says that servers come and go.
	Lives bool
	// Accelerator is the accelerator's name, and GPUs how many each server has.
	Accelerator string
	GPUs        int
	// PerGPUHour is the price in USD, 0 where none is known. Source names who gave it, and when.
	PerGPUHour float64
	Source     string
}

// ServersSummary reports how many servers a group had, and their cost. Summaries contain it where servers come and go,
// or have a price.
type ServersSummary struct {
	Pool       string `json:"pool"`
	Deployment string `json:"deployment"`
	// Mean is the mean number of ready servers, Least and Most are the extremes. Started counts the servers that were
	// created, including those at the begin, and Decisions how often an autoscaler wanted another number.
	Mean      float64 `json:"mean"`
	Least     int     `json:"least"`
	Most      int     `json:"most"`
	Started   int     `json:"started"`
	Decisions int     `json:"decisions,omitempty"`
	// Cut counts requests that broke off at the end of a server's grace period.
	Cut int `json:"cut,omitempty"`
	// Accelerator is the name of the GPUs. GPUHours are from a server's creation until it is gone, so starting and
	// leaving servers are paid for.
	Accelerator string  `json:"accelerator"`
	GPUs        int     `json:"gpus"`
	GPUHours    float64 `json:"gpuHours"`
	// Price is nil where none is known.
	Price *PriceSummary `json:"price,omitempty"`
	// Replicas is how many servers there were, at each change, and Scalings are the autoscaler's decisions.
	Replicas []Replicas `json:"replicas,omitempty"`
	Scalings []Scaling  `json:"scalings,omitempty"`
}

// Scaling is an autoscaler's decision for another number of servers, in seconds since the run began.
type Scaling struct {
	At   float64 `json:"at"`
	From int     `json:"from"`
	To   int     `json:"to"`
}

// PriceSummary is a price in USD with its source, and the cost that results from it.
type PriceSummary struct {
	PerGPUHour float64 `json:"perGPUHour"`
	Source     string  `json:"source"`
	Cost       float64 `json:"cost"`
}

// Replicas is how many servers there are from a time on, in seconds since the run began.
type Replicas struct {
	At       float64 `json:"at"`
	Starting int     `json:"starting"`
	Ready    int     `json:"ready"`
	Leaving  int     `json:"leaving"`
}

// CostSummary is the cost of all servers.
type CostSummary struct {
	GPUHours float64 `json:"gpuHours"`
	// USD is the total, and PerMillion the cost of a million output tokens of completed requests. Both are nil where
	// some servers have no price.
	USD        *float64 `json:"usd,omitempty"`
	PerMillion *float64 `json:"usdPerMillionOutputTokens,omitempty"`
}

// servers counts servers by group.
type servers struct {
	list     []*serverCount
	of       map[string]*serverCount // by deployment
	reported bool                    // some servers come and go, or have a price
}

type serverCount struct {
	DeploymentInfo
	pool                     string
	phase                    map[string]record.Step // of each server that exists
	starting, ready, leaving int
	changes                  []Replicas
	started, cut, decisions  int
	rates                    []Rate
	scaled                   []Scaling
}

// Rate is how many accelerators there are from a time on.
type Rate struct {
	At   machine.Time
	GPUs int
}

// maxChanges bounds the changes that are kept of a group.
const maxChanges = 100_000

// setServers makes the tally count these pools' servers.
func (t *Tally) setServers(list []Pool) {
	t.servers = servers{of: map[string]*serverCount{}}
	for _, p := range list {
		for _, g := range p.Groups {
			if g.Deployment == "" {
				continue
			}
			c := &serverCount{DeploymentInfo: g.DeploymentInfo, pool: p.Name, phase: map[string]record.Step{}}
			if !g.Lives {
				c.ready, c.started = g.Replicas, g.Replicas
				c.changed(0)
			}
			t.servers.list, t.servers.of[g.Deployment] = append(t.servers.list, c), c
			t.servers.reported = t.servers.reported || g.Lives || g.PerGPUHour > 0
		}
	}
}

// Servers sets the pools of the run, for a tally without a Session.
func (t *Tally) Servers(list []Pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setServers(list)
}

// record counts an event of a server.
func (x *servers) record(e *record.Event) {
	if len(x.list) == 0 {
		return
	}
	name, _ := e.Details.Get("deployment").(string)
	c := x.of[name]
	if c == nil || !c.Lives {
		return
	}
	server, _ := e.Details.Get("name").(string)
	switch e.Step {
	case record.ServerStarted:
		c.started++
	case record.ServerReady, record.ServerLeaving, record.ServerGone:
	case record.Scaled:
		c.decisions++
		if len(c.scaled) < maxChanges {
			from, _ := whole(e.Details.Get("from"))
			to, _ := whole(e.Details.Get("to"))
			c.scaled = append(c.scaled, Scaling{Digits(e.Time.Seconds()), from, to})
		}
		return
	default:
		return
	}
	if n, ok := whole(e.Details.Get("cut")); ok {
		c.cut += n
	}
	c.count(c.phase[server], -1)
	if e.Step == record.ServerGone {
		delete(c.phase, server)
	} else if len(c.phase) < maxEndpoints || c.phase[server] != "" {
		c.phase[strings.Clone(server)] = e.Step
		c.count(e.Step, 1)
	}
	c.changed(e.Time)
}

func (c *serverCount) count(step record.Step, by int) {
	switch step {
	case record.ServerStarted:
		c.starting += by
	case record.ServerReady:
		c.ready += by
	case record.ServerLeaving:
		c.leaving += by
	}
}

// changed notes the numbers of servers from a time on.
func (c *serverCount) changed(at machine.Time) {
	now, gpus := Replicas{Digits(at.Seconds()), c.starting, c.ready, c.leaving},
		Rate{at, (c.starting + c.ready + c.leaving) * c.GPUs}
	if n := len(c.changes); n > 0 && c.changes[n-1].At == now.At {
		c.changes[n-1], c.rates[n-1] = now, gpus
	} else if n < maxChanges {
		c.changes, c.rates = append(c.changes, now), append(c.rates, gpus)
	}
}

// gpuSeconds returns the accelerators' time between two moments, in seconds.
func gpuSeconds(rates []Rate, from, to machine.Time) (sum float64) {
	for i, r := range rates {
		until := to
		if i+1 < len(rates) {
			until = min(until, rates[i+1].At)
		}
		if begin := max(from, r.At); until > begin {
			sum += float64(r.GPUs) * (until - begin).Seconds()
		}
	}
	return sum
}

// summary returns the summary of each group by the end of a run.
func (x *servers) summary(end machine.Time) (out []ServersSummary) {
	if !x.reported {
		return nil
	}
	for _, c := range x.list {
		s := ServersSummary{Pool: c.pool, Deployment: c.Deployment, Started: c.started, Decisions: c.decisions,
			Cut: c.cut, Accelerator: c.Accelerator, GPUs: c.GPUs,
			GPUHours: Digits(gpuSeconds(c.rates, 0, end) / 3600)}
		if c.PerGPUHour > 0 {
			s.Price = &PriceSummary{c.PerGPUHour, c.Source, Digits(s.GPUHours * c.PerGPUHour)}
		}
		for i, r := range c.changes {
			until := end.Seconds()
			if i+1 < len(c.changes) {
				until = min(until, c.changes[i+1].At)
			}
			if i == 0 || r.Ready < s.Least {
				s.Least = r.Ready
			}
			s.Most = max(s.Most, r.Ready)
			if span := until - r.At; span > 0 && end > 0 {
				s.Mean += float64(r.Ready) * span / end.Seconds()
			}
		}
		if s.Mean = Digits(s.Mean); c.Lives {
			s.Replicas, s.Scalings = slices.Clone(c.changes), slices.Clone(c.scaled)
		}
		out = append(out, s)
	}
	return out
}

// costs returns the cost of all servers, for so many output tokens.
func costs(list []ServersSummary, output float64) *CostSummary {
	if len(list) == 0 {
		return nil
	}
	c, usd, priced := &CostSummary{}, 0.0, true
	for i := range list {
		c.GPUHours += list[i].GPUHours
		if p := list[i].Price; p != nil {
			usd += p.Cost
		} else {
			priced = false
		}
	}
	if c.GPUHours = Digits(c.GPUHours); priced {
		c.USD = &usd
		if output > 0 {
			per := Digits(usd / output * 1e6)
			c.PerMillion = &per
		}
	}
	return c
}

// Ledger has the cost of a run's servers over time. For each group it has the Rates at which accelerators were there,
// and the Prices in USD per GPU-second, 0 without one. Priced says that all groups have one.
type Ledger struct {
	Rates  [][]Rate
	Prices []float64
	Priced bool
}

// ledger returns nil where servers neither come nor go, nor have a price.
func (x *servers) ledger() *Ledger {
	if !x.reported {
		return nil
	}
	l := &Ledger{Priced: true}
	for _, c := range x.list {
		l.Rates, l.Prices = append(l.Rates, slices.Clone(c.rates)), append(l.Prices, c.PerGPUHour/3600)
		l.Priced = l.Priced && c.PerGPUHour > 0
	}
	return l
}

// between returns the accelerators' time and cost between two moments.
func (l *Ledger) between(from, to machine.Time) (seconds, usd float64) {
	if l == nil {
		return 0, 0
	}
	for i, rates := range l.Rates {
		s := gpuSeconds(rates, from, to)
		seconds += s
		usd += float64(s * l.Prices[i])
	}
	return seconds, usd
}

// scaledAfter reports whether an autoscaler wanted another number of servers after a time.
func (x *servers) scaledAfter(at machine.Time) bool {
	return slices.ContainsFunc(x.list, func(c *serverCount) bool {
		return slices.ContainsFunc(c.scaled, func(x Scaling) bool { return x.At > at.Seconds() })
	})
}

// writeServers adds lines with the number of servers and their cost.
func (s Summary) writeServers(l *lines) {
	for i := range s.Servers {
		x := &s.Servers[i]
		words := []string{}
		if len(s.Servers) > 1 {
			words = append(words, x.Deployment)
		}
		if x.Least == x.Most {
			words = append(words, terminal.Counted(x.Most, "server"))
		} else {
			words = append(words, fmt.Sprintf("%.3g on average, %d to %d", x.Mean, x.Least, x.Most))
		}
		if x.Decisions > 0 {
			words = append(words, terminal.Counted(x.Decisions, "decision"))
		}
		if x.Cut > 0 {
			words = append(words, l.paint.Red(terminal.Counted(x.Cut, "request")+" cut at the end of the grace period"))
		}
		words = append(words, fmt.Sprintf("%.3g GPU-hours of %s", x.GPUHours, x.Accelerator))
		if p := x.Price; p != nil {
			words = append(words, fmt.Sprintf("%.4g USD at %g an hour (%s)", p.Cost, p.PerGPUHour, p.Source))
		}
		l.words(first(i, "servers"), words, " · ")
		l.list("", x.scalings())
	}
	if c := s.Cost; c != nil && c.USD != nil && c.PerMillion != nil {
		l.list("cost", []string{fmt.Sprintf("%.4g USD", *c.USD),
			fmt.Sprintf("%.4g USD per 1M output tokens", *c.PerMillion)})
	}
}

// scalings returns the autoscaler's first decisions in words.
func (x *ServersSummary) scalings() (out []string) {
	const most = 8
	for _, d := range x.Scalings[:min(len(x.Scalings), most)] {
		out = append(out, fmt.Sprintf("%d → %d at %s", d.From, d.To, terminal.Span(d.At)))
	}
	if n := len(x.Scalings) - most; n > 0 {
		out = append(out, fmt.Sprintf("%s more", terminal.Thousands(n)))
	}
	return out
}

// readyAt returns how many servers were ready at a time, in seconds.
func (x *ServersSummary) readyAt(at float64) int {
	ready := x.Most
	for _, r := range x.Replicas {
		if r.At > at {
			break
		}
		ready = r.Ready
	}
	return ready
}
