package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/report/steptimes"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// ServerLoad reports how busy and full one model server was.
type ServerLoad struct {
	Pool, Name, Endpoint string
	Role                 Role
	engine.Load
}

// Role is the part of inference that a model server does.
type Role string

// The roles: only prefill, decode after another server's prefill, and both.
const (
	Prefills Role = "prefill"
	Decodes  Role = "decode"
	Both     Role = "both"
)

// Roles lists all roles.
func Roles() []Role { return []Role{Prefills, Decodes, Both} }

// LoadSummary reports how busy and full a pool's servers with one role were, over the whole run.
type LoadSummary struct {
	Pool    string `json:"pool,omitempty"`
	Role    Role   `json:"role"`
	Servers int    `json:"servers"`
	// Busy is the share of the time in which a server computed: the mean of the servers, the least and the most.
	// Balance is the most over the mean, 1 where all servers did as much.
	Busy    BusySummary `json:"busy"`
	Balance float64     `json:"balance,omitempty"`
	// Prompts is the part of Busy.Mean that prompts took. In a step with tokens as well, it is the time beyond a step
	// with these tokens alone.
	Prompts float64 `json:"prompts"`
	// Slots is the limit of requests that one server runs at once.
	Slots int `json:"slots"`
	// Queue counts requests that waited in a server's engine, and Running those that it computed. KV is the share of a
	// server's KV blocks in use. Means are over time and servers. A peak is the highest of any server.
	Queue       LevelSummary `json:"queue"`
	Running     LevelSummary `json:"running"`
	KV          LevelSummary `json:"kv"`
	Preemptions uint64       `json:"preemptions"`
	// StepTimes reports the sources of step times by hardware, and how far another source would move the times of these
	// servers' steps.
	StepTimes []steptimes.Summary `json:"stepTimes,omitempty"`
	// Each has the servers one by one, at most 1,024.
	Each []ServerSummary `json:"each,omitempty"`
}

// StepError is the expected error of step times by their sources, in words and as the largest shares of any server.
type StepError struct {
	Text       string
	TTFT, TPOT float64
	// Sources are those of the step times. Two runs with equal sources have the same error, which cancels in their
	// difference.
	Sources string
}

// Most returns the larger share.
func (e *StepError) Most() float64 { return max(e.TTFT, e.TPOT) }

// StepErrorOf returns the expected error of servers' step times. The text is empty if no server has one.
func StepErrorOf(load []LoadSummary) (e StepError) {
	var texts, from []string
	for i := range load {
		for _, s := range load[i].StepTimes {
			from = append(from, s.Source)
			if x := s.Expected; x != nil {
				texts = append(texts, s.Name+": "+x.String())
				e.TTFT, e.TPOT = max(e.TTFT, x.TTFT), max(e.TPOT, x.TPOT)
			}
		}
	}
	join := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), "; ")
	}
	e.Text, e.Sources = terminal.Printable(join(texts)), join(from)
	return e
}

// BusySummary are shares of the time.
type BusySummary struct {
	Mean  float64 `json:"mean"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// LevelSummary is the mean and the peak of a varying quantity.
type LevelSummary struct {
	Mean float64 `json:"mean"`
	Peak float64 `json:"peak"`
}

// ServerSummary reports how busy and full one server was.
type ServerSummary struct {
	Name        string       `json:"name"`
	Endpoint    string       `json:"endpoint"`
	Busy        float64      `json:"busy"`
	Queue       LevelSummary `json:"queue"`
	Running     LevelSummary `json:"running"`
	KV          LevelSummary `json:"kv"`
	Preemptions uint64       `json:"preemptions"`
}

// maxServersListed bounds how many servers a summary lists one by one.
const maxServersListed = 1024

// summarized returns the load by pool and role, in the order of the servers. Servers that compute no steps have no
// load.
func summarized(list []ServerLoad) (out []LoadSummary) {
	pools := map[string]bool{}
	for i := range list {
		pools[list[i].Pool] = true
	}
	at := map[[2]string]int{}
	var times []steptimes.Counts
	for i := range list {
		x := &list[i]
		if x.Total == 0 {
			continue
		}
		key := [2]string{x.Pool, string(x.Role)}
		k, known := at[key]
		if !known {
			k, at[key] = len(out), len(out)
			times = append(times, nil)
			out = append(out, LoadSummary{Role: x.Role, Busy: BusySummary{Least: 1}})
			if len(pools) > 1 {
				out[k].Pool = x.Pool
			}
		}
		one := x.summary(len(list) <= maxServersListed)
		out[k].add(&one)
		times[k] = times[k].Add(&x.Load)
	}
	for i := range out {
		out[i].end()
		out[i].StepTimes = times[i].Summaries(out[i].Role != Decodes, out[i].Role != Prefills)
	}
	return out
}

// summary returns the load of one server. With each, its Each has the server.
func (x *ServerLoad) summary(each bool) LoadSummary {
	total := float64(x.Total)
	one := ServerSummary{Name: x.Name, Endpoint: x.Endpoint, Preemptions: x.Preemptions,
		Queue:   LevelSummary{x.Waiting.Mean(x.For), float64(x.Waiting.Peak)},
		Running: LevelSummary{x.Running.Mean(x.For), float64(x.Running.Peak)},
		KV:      LevelSummary{round(x.Blocks.Mean(x.For) / total), round(float64(x.Blocks.Peak) / total)}}
	s := LoadSummary{Servers: 1, Slots: x.Slots, Preemptions: one.Preemptions}
	if x.For > 0 {
		one.Busy = round(float64(x.Busy) / float64(x.For))
		s.Prompts = float64(x.Prompts) / float64(x.For)
	}
	s.Busy, s.Queue, s.Running, s.KV = BusySummary{one.Busy, one.Busy, one.Busy}, one.Queue, one.Running, one.KV
	if each {
		s.Each = []ServerSummary{one}
	}
	return s
}

// add adds the servers of another load. Means are sums until end.
func (s *LoadSummary) add(x *LoadSummary) {
	n := float64(x.Servers)
	s.Servers += x.Servers
	s.Slots = max(s.Slots, x.Slots)
	s.Busy.Mean += float64(n * x.Busy.Mean)
	s.Prompts += float64(n * x.Prompts)
	s.Busy.Least, s.Busy.Most = min(s.Busy.Least, x.Busy.Least), max(s.Busy.Most, x.Busy.Most)
	for _, l := range []struct{ all, one *LevelSummary }{{&s.Queue, &x.Queue}, {&s.Running, &x.Running},
		{&s.KV, &x.KV}} {
		l.all.Mean += float64(n * l.one.Mean)
		l.all.Peak = max(l.all.Peak, l.one.Peak)
	}
	s.Preemptions += x.Preemptions
	s.Each = append(s.Each, x.Each...)
}

// end divides the sums by the number of servers.
func (s *LoadSummary) end() {
	for _, mean := range []*float64{&s.Busy.Mean, &s.Prompts, &s.Queue.Mean, &s.Running.Mean, &s.KV.Mean} {
		*mean = round(*mean / float64(s.Servers))
	}
	if s.Busy.Mean > 0 {
		s.Balance = round(s.Busy.Most / s.Busy.Mean)
	}
}

// loadOf returns the load of all pools' servers with a role, nil where there are none.
func loadOf(list []LoadSummary, role Role) *LoadSummary {
	var all *LoadSummary
	for i := range list {
		x := &list[i]
		if x.Role != role {
			continue
		}
		if all == nil {
			all = &LoadSummary{Role: role, Busy: BusySummary{Least: 1}}
		}
		all.add(x)
	}
	if all != nil {
		all.end()
	}
	return all
}

// loadMeasures returns the measures of servers, by role. They cover a whole run, so only several runs give them an
// interval.
func loadMeasures() (list []Measure) {
	for _, role := range Roles() {
		suffix := ""
		if role != Both {
			suffix = " " + string(role)
		}
		add := func(name string, unit Unit, of func(*LoadSummary) float64) {
			list = append(list, Measure{Name: name + suffix, Unit: unit, load: true, whole: func(p *part) float64 {
				if x := loadOf(p.load, role); x != nil {
					return of(x)
				}
				return math.NaN()
			}})
		}
		add("utilisation", Share, func(x *LoadSummary) float64 { return x.Busy.Mean })
		add("balance", Ratio, func(x *LoadSummary) float64 { return cmp.Or(x.Balance, math.NaN()) })
		add("queue mean", Count, func(x *LoadSummary) float64 { return x.Queue.Mean })
		add("queue peak", Count, func(x *LoadSummary) float64 { return x.Queue.Peak })
		add("kv use mean", Share, func(x *LoadSummary) float64 { return x.KV.Mean })
		add("kv use peak", Share, func(x *LoadSummary) float64 { return x.KV.Peak })
		add("preemptions", Count, func(x *LoadSummary) float64 { return float64(x.Preemptions) })
	}
	return list
}

// writeLoad adds a table of the servers by pool and role.
func (s Summary) writeLoad(l *lines) {
	if len(s.Load) == 0 {
		return
	}
	l.b.WriteString(l.paint.Bold("load     ") +
		fmt.Sprintf("  %7s %7s %6s %6s %7s %6s %5s %6s %6s\n", "servers", "in step", "least", "most", "batch", "queue",
			"peak", "kv", "peak"))
	share := func(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) }
	var steps []string
	for i := range s.Load {
		x := &s.Load[i]
		name := []rune(cmp.Or(x.Pool, map[Role]string{Both: "all"}[x.Role], string(x.Role)))
		if x.Pool != "" && x.Role != Both {
			name = append(name, []rune(" "+string(x.Role))...)
		}
		if longest := labelColumns; len(name) > longest {
			name = append(name[:longest-1], '…')
		}
		batch := "-" // how full it is
		if x.Slots > 0 {
			batch = share(x.Running.Mean / float64(x.Slots))
		}
		l.b.WriteString(fmt.Sprintf("  %-9s%7s %7s %6s %6s %7s %6.3g %5.0f %6s %6s\n", string(name),
			terminal.Thousands(x.Servers), share(x.Busy.Mean), share(x.Busy.Least), share(x.Busy.Most),
			batch, x.Queue.Mean, x.Queue.Peak, share(x.KV.Mean), share(x.KV.Peak)))
		if x.Preemptions > 0 {
			l.add("", terminal.Counted(int(min(x.Preemptions, math.MaxInt32)), "preemption"))
		}
		for j := range x.StepTimes {
			if text := string(name) + ": " + x.StepTimes[j].String(); !slices.Contains(steps, text) {
				steps = append(steps, text)
			}
		}
	}
	for i, text := range steps {
		l.add(first(i, "steps"), text)
	}
}
