package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Pool is a pool of model servers. With it, the summary lists servers without requests as well.
type Pool struct {
	Name   string
	Groups []Group
	// Pickers are the replicas of the endpoint picker, where there are several.
	Pickers []string
}

// Group is a set of similar servers of a pool.
type Group struct {
	Name string
	// Prefill says that the servers only prefill.
	Prefill   bool
	Endpoints []string
	DeploymentInfo
}

// PoolSummary reports on the requests of one pool. Summaries contain it where there are several pools, groups of
// servers or pickers.
type PoolSummary struct {
	Name string `json:"name"`
	// Requests reached the pool's endpoint picker.
	Requests int                    `json:"requests"`
	Outcomes map[record.Outcome]int `json:"outcomes,omitempty"`
	Served   Served                 `json:"served"`
	// Pickers counts the requests of each replica of the picker, where there are several.
	Pickers map[string]int `json:"pickers,omitempty"`
	// Groups are the pool's groups of servers, where they differ.
	Groups []GroupSummary `json:"groups,omitempty"`
}

// GroupSummary reports on one group of servers.
type GroupSummary struct {
	Name    string `json:"name"`
	Servers int    `json:"servers"`
	// Prefill says that the servers only prefill. Requests then counts prefill legs, and else requests for which the
	// picker chose one of the servers.
	Prefill  bool   `json:"prefill,omitempty"`
	Requests int    `json:"requests"`
	Served   Served `json:"served"`
}

// Served reports on completed requests.
type Served struct {
	Completed    int `json:"completed"`
	PromptTokens int `json:"promptTokens"`
	OutputTokens int `json:"outputTokens"`
	// TTFT and E2E are from the client's request to its first and its last token. They are nil where no request
	// completed.
	TTFT *SpanSummary `json:"ttft,omitempty"`
	E2E  *SpanSummary `json:"e2e,omitempty"`
}

// Pools sets the pools of the run.
func (s *Session) Pools(list []Pool) {
	var endpoints, prefill []string
	for i := range list {
		for _, g := range list[i].Groups {
			there := g.Endpoints
			if g.Lives { // the others did not exist, so they may be missing
				there = there[:min(len(there), g.Replicas)]
			}
			if g.Prefill {
				prefill = append(prefill, there...)
			} else {
				endpoints = append(endpoints, there...)
			}
		}
	}
	s.servers(endpoints, prefill)
	s.tally.setPools(list)
}

// pools counts requests by pool, and by group in each pool.
type pools struct {
	list []*poolCount
	of   map[string]*poolCount  // by name
	at   map[string]*groupCount // by endpoint
}

type poolCount struct {
	Pool
	requests int
	outcomes counts[record.Outcome]
	pickers  counts[string]
	served   servedCount
	groups   []*groupCount
}

type groupCount struct {
	Group
	pool   *poolCount
	served servedCount
}

type servedCount struct {
	completed, prompt, output int
	ttft, e2e                 latencies
}

type latencies struct {
	hist    *hdrhistogram.Histogram // in microseconds
	most    machine.Time            // exact, where the histogram rounds
	slowest string                  // the first request that took most, if the caller keeps it
}

// setPools makes the tally count by these pools. One pool with similar servers and one picker needs no counts.
func (t *Tally) setPools(list []Pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setServers(list)
	if len(list) == 1 && len(list[0].Pickers) < 2 &&
		!slices.ContainsFunc(list[0].Groups, func(g Group) bool { return g.Name != "" }) {
		return
	}
	t.pools = pools{of: map[string]*poolCount{}, at: map[string]*groupCount{}}
	for _, p := range list {
		c := &poolCount{Pool: p, outcomes: counts[record.Outcome]{}, pickers: counts[string]{}}
		for _, name := range p.Pickers {
			c.pickers[name] = 0
		}
		for _, g := range p.Groups {
			n := &groupCount{Group: g, pool: c}
			c.groups = append(c.groups, n)
			for _, e := range g.Endpoints {
				t.pools.at[e] = n
			}
		}
		t.pools.list, t.pools.of[p.Name] = append(t.pools.list, c), c
	}
}

// received counts a request at a pool's picker.
func (x *pools) received(r *openRequest, e *record.Event) {
	if len(x.list) == 0 {
		return
	}
	name, _ := e.Details.Get("pool").(string)
	if r.pool = x.of[name]; r.pool == nil && len(x.list) == 1 {
		r.pool = x.list[0]
	}
	if r.pool == nil {
		return
	}
	r.pool.requests++
	if k, _ := e.Details.Get("picker").(string); k != "" {
		r.pool.pickers.add(k, maxEndpoints)
	}
}

// ended counts a request that has its outcome.
func (x *pools) ended(r *openRequest, o record.Outcome, e *Ended) {
	if r.pool == nil {
		return
	}
	r.pool.outcomes.add(o, maxOutcomes)
	if !e.Completed {
		return
	}
	r.pool.served.add(e)
	if g := x.at[r.server]; g != nil {
		g.served.add(e)
	}
}

// countLife counts a request that was recorded as a life.
func (x *pools) countLife(l *record.Life, e *Ended) {
	if g := x.at[l.Endpoint]; g != nil {
		g.pool.requests++
		g.pool.outcomes.add(l.Outcome(), maxOutcomes)
		g.pool.served.add(e)
		g.served.add(e)
	}
}

// named reports whether requests are counted by replica of a picker, which only their events name.
func (x *pools) named() bool {
	return slices.ContainsFunc(x.list, func(p *poolCount) bool { return len(p.Pickers) > 0 })
}

func (c *servedCount) add(e *Ended) {
	c.completed, c.prompt, c.output = c.completed+1, c.prompt+int(e.Prompt), c.output+int(e.Tokens)
	c.ttft.add(e.TTFT, 1)
	c.e2e.add(e.E2E, 1)
}

// add counts n times of this length.
func (l *latencies) add(d machine.Time, n int) {
	if l.hist == nil {
		l.hist = hdrhistogram.New(1, int64(longestSpan/machine.Microsecond), 3)
	}
	l.most = max(l.most, d)
	// The value is inside the histogram's bounds, the only error there is.
	_ = l.hist.RecordValues(int64(min(d, longestSpan)/machine.Microsecond), int64(n))
}

func (l *latencies) summary(name string) *SpanSummary {
	if l.hist == nil {
		return nil
	}
	most := l.most.Seconds()
	at := func(q float64) float64 { return min(round(float64(l.hist.ValueAtQuantile(q))/1e6), most) }
	return &SpanSummary{Name: name, Count: int(l.hist.TotalCount()), P50: at(50), P90: at(90), P99: at(99), Max: most,
		Slowest: l.slowest}
}

func (c *servedCount) summary() Served {
	return Served{Completed: c.completed, PromptTokens: c.prompt, OutputTokens: c.output, TTFT: c.ttft.summary("ttft"),
		E2E: c.e2e.summary("e2e")}
}

// summary returns a summary of every pool. picked and prefills count the requests by endpoint.
func (x *pools) summary(picked, prefills counts[string]) []PoolSummary {
	var out []PoolSummary
	for _, p := range x.list {
		s := PoolSummary{Name: p.Name, Requests: p.requests, Outcomes: maps.Clone(p.outcomes),
			Served: p.served.summary()}
		if len(p.pickers) > 0 {
			s.Pickers = maps.Clone(p.pickers)
		}
		for _, g := range p.groups {
			if g.Name == "" {
				continue
			}
			from, n := picked, 0
			if g.Prefill {
				from = prefills
			}
			for _, e := range g.Endpoints {
				n += from[e]
			}
			s.Groups = append(s.Groups,
				GroupSummary{Name: g.Name, Servers: len(g.Endpoints), Prefill: g.Prefill, Requests: n,
					Served: g.served.summary()})
		}
		out = append(out, s)
	}
	return out
}

// longestLabel bounds the names in the table, in characters.
const longestLabel = 24

// writePools adds a table of the pools and their groups, with as many columns as fit.
func (s Summary) writePools(l *lines) {
	if len(s.Pools) == 0 {
		return
	}
	type row struct {
		name  string
		cells []string
	}
	rows := []row{{"pool", []string{"requests", "completed", "tokens", "ttft p50", "p99", "e2e p50", "p99"}}}
	add := func(name string, requests int, v *Served) {
		r := row{"  " + name, []string{terminal.Thousands(requests), terminal.Thousands(v.Completed)}}
		if v.TTFT != nil && v.E2E != nil {
			r.cells = append(r.cells, terminal.Thousands(v.OutputTokens), terminal.Span(v.TTFT.P50),
				terminal.Span(v.TTFT.P99), terminal.Span(v.E2E.P50), terminal.Span(v.E2E.P99))
		}
		rows = append(rows, r)
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		add(p.Name, p.Requests, &p.Served)
		for k := range p.Groups {
			g := &p.Groups[k]
			add("  "+g.label(), g.Requests, &g.Served)
		}
	}
	width := labelColumns
	for i := range rows {
		if name := []rune(rows[i].name); len(name) > longestLabel {
			rows[i].name = string(name[:longestLabel-1]) + "…"
		}
		width = max(width, terminal.Columns(rows[i].name))
	}
	for i, r := range rows {
		line := r.name + strings.Repeat(" ", width-terminal.Columns(r.name))
		for k, cell := range r.cells {
			if cell = fmt.Sprintf(" %8s", cell); k == 1 { // under its longer head
				cell = fmt.Sprintf(" %9s", r.cells[k])
			}
			if l.columns > 0 && terminal.Columns(line+cell) > l.columns {
				break
			}
			line += cell
		}
		if i == 0 {
			line = l.paint.Bold(r.name) + line[len(r.name):]
		}
		l.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for _, p := range s.Pools {
		l.list("pickers", shares(p.Pickers))
	}
}

// label returns the group's name with the number of its servers.
func (g *GroupSummary) label() string {
	return fmt.Sprintf("%s ×%d%s", cmp.Or(g.Name, "servers"), g.Servers, map[bool]string{true: " prefill"}[g.Prefill])
}
