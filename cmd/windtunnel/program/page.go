package program

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	resolved "github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/web"
)

// pageFlags show a run on a page.
type pageFlags struct {
	UI bool `help:"Show the run on a page for a browser on this machine. run, sim, tune and replay then stay until Ctrl-C."`

	UIPort int `placeholder:"N" help:"Port of that page. Left out: a free one."`
}

// shownPage is the page of a run; nil without --ui.
type shownPage struct {
	book   *web.Book
	server *web.Server
	meta   web.Meta
	inputs *web.Inputs
}

// start serves the page of a run, and adds the page to the report's readers.
func (f *pageFlags) start(o *report.Options, m web.Meta) (*shownPage, error) {
	if !f.UI {
		if f.UIPort != 0 {
			return nil, exit.Errorf(exit.Usage, "--ui-port %d: there is no page without --ui", f.UIPort)
		}
		return nil, nil
	}
	p := &shownPage{book: web.NewBook()}
	if m.File != "" {
		m.File = filepath.Base(m.File)
	}
	m.Version, m.Scenario, m.Seed = version.Text(), o.Scenario, o.Seed
	var err error
	if p.server, err = web.Start(web.Options{Book: p.book, Port: f.UIPort, Meta: m}); err != nil {
		return nil, err
	}
	p.meta, p.inputs = m, web.NewInputs()
	o.Also = p.book
	if m.Mode != "replay" { // whose recording has the inputs
		o.Inputs = p.inputs
		p.server.Inputs(p.inputs.Each)
	}
	return p, nil
}

// describe changes the description of the run on the page.
func (p *shownPage) describe(change func(m *web.Meta)) {
	if p != nil {
		change(&p.meta)
		p.server.Describe(p.meta)
	}
}

// printLink prints the link of the page.
func (p *shownPage) printLink(w io.Writer) {
	if p != nil {
		fmt.Fprintf(w, "page  %s\n", p.server.Link())
	}
}

// live lets the page show the states of a stack's endpoints and act on the stack, until ctx ends.
func (p *shownPage) live(ctx context.Context, st *stack.Stack, s *scenario.Scenario) {
	if p == nil {
		return
	}
	p.describe(func(m *web.Meta) {
		m.KVManager = st.Addresses().KVManager != ""
		m.Gateway, m.Pools = st.Gateway.Addr, pagePools(s, func(pool int) []string { return st.Pools[pool].Endpoints })
		m.Do, m.WhatIf = actions(s), len(st.Pools[0].Pickers) > 0
	})
	p.server.Acts(func(asking context.Context, a web.Act) (string, error) { return act(ctx, asking, st, a) })
	p.parts(func(asking context.Context, id string) (web.Part, error) { return partState(asking, st, s, id) })
	go func() {
		for pause.For(ctx, 250*time.Millisecond) {
			st.EndpointStates(func(now machine.Time,
				e *picker.State) {
				p.book.Gauge(now, e.HostPort(), web.GaugeOf(e))
			})
		}
	}()
}

// parts lets the page read the state of a live run's parts.
func (p *shownPage) parts(ask func(ctx context.Context, id string) (web.Part, error)) {
	if p != nil {
		p.server.Parts(ask)
	}
}

// played shows the endpoint states in the log of inputs of a run that is over.
func (p *shownPage) played(ctx context.Context, each func(func(line []byte) error) error) {
	if p == nil {
		return
	}
	p.server.Inputs(each)
	if err := web.PlayGauges(ctx, p.book, each); err == nil {
		p.describe(func(m *web.Meta) { m.WhatIf = true })
	}
}

// measure shows the measures of a session.
func (p *shownPage) measure(s *report.Session) {
	if p != nil {
		p.book.Measure(s)
	}
}

// end marks the run as over.
func (p *shownPage) end() { p.book.End() }

// stay waits for an interruption after the end of a run, while its page is up.
func (p *shownPage) stay(ctx context.Context, o *outside) {
	if p == nil {
		return
	}
	p.book.End()
	if ctx.Err() == nil {
		fmt.Fprintf(o.Stderr, "\nThe page stays until Ctrl-C: %s\n", p.server.Link())
		<-ctx.Done()
	}
}

func (p *shownPage) stop() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.server.Stop(ctx) // browsers may be slow to disconnect
}

// pagePools returns the scenario's pools in the form of the page.
func pagePools(s *scenario.Scenario, endpoints func(pool int) []string) []web.Pool {
	list := search.Pools(s, endpoints)
	out := make([]web.Pool, len(list))
	all, err := s.Plan()
	for i, p := range list {
		sp := &s.Pools[i]
		out[i] = web.Pool{Name: p.Name, Lives: sp.Lives(), Held: sp.Flow == scenario.Held,
			Config: string(sp.EPP.Config.Text)}
		first := 0
		for _, g := range p.Groups {
			group := web.Group{Name: g.Name, Prefill: g.Prefill, Endpoints: g.Endpoints}
			if err == nil && first < len(all.Pools[i].Servers) { // else the servers are external
				group.Settings = settings(sp.Models(), &all.Pools[i].Servers[first])
			}
			out[i].Groups = append(out[i].Groups, group)
			first += len(g.Endpoints)
		}
	}
	return out
}

// settings returns a simulated server's settings, by the names of vLLM's flags.
func settings(models []string, x *resolved.Server) (out string) {
	c := &x.Engine
	for _, x := range []struct {
		name  string
		value int
	}{{"max-num-seqs", c.MaxNumSeqs}, {"max-num-batched-tokens", c.MaxNumBatchedTokens},
		{"max-model-len", c.MaxModelLen}, {"block-size", c.BlockSize}, {"num-gpu-blocks", c.NumGPUBlocks},
		{"max-loras", c.MaxLoRAs}, {"tensor-parallel-size", x.TensorParallel}} {
		if x.value > 0 {
			out += fmt.Sprintf("%s: %d\n", x.name, x.value)
		}
	}
	return fmt.Sprintf("model: %s\nbatching: %s\nenable-prefix-caching: %t\n%s", strings.Join(models, ", "), c.Batching,
		!c.DisablePrefixCaching, out)
}

// recordedPools returns the servers in a recording's summary.
func recordedPools(sum *report.Summary) []web.Pool {
	p := web.Pool{Groups: []web.Group{{Endpoints: slices.Sorted(maps.Keys(sum.Endpoints))}}}
	if len(sum.PrefillServers) > 0 {
		p.Groups = append(p.Groups, web.Group{Prefill: true, Endpoints: slices.Sorted(maps.Keys(sum.PrefillServers))})
	}
	return []web.Pool{p}
}

// runClock returns the clock of a run that began at a time.
func runClock(origin time.Time) func() machine.Time {
	return func() machine.Time { return machine.FromDuration(time.Since(origin)) }
}
