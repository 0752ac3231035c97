package program

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/spans"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/web"
)

type upCmd struct {
	Files     []string `name:"filename" short:"f" required:"" placeholder:"FILE|DIR|-" sep:"none" help:"Manifests: a file, a directory of YAML and JSON files, or - for standard input. Repeatable."`
	DryRun    bool     `help:"Print what would be started, and start nothing."`
	Listen    string   `default:"127.0.0.1" placeholder:"IP" help:"Address of the first Gateway; further ones follow."`
	AdminPort int      `placeholder:"N" help:"Port of Envoy's own pages (/stats, /config_dump). Left out: a free one."`
	envoyFlag
	Status string `placeholder:"FILE" help:"Keep the status of every object in FILE, as a controller writes it."`
	verboseFlag
	textOrJSON
	pageFlags
	spans.To
}

func (upCmd) Help() string {
	return `Reads Kubernetes manifests and stays up: Gateways are listeners of a real Envoy, HTTPRoutes its routes,
InferencePools have an endpoint picker each, and the replicas of Deployments are simulated model servers with
the arguments of their containers. An edited file is applied within a second, while requests flow; an invalid
one is reported and changes nothing. Ctrl-C drains and ends. Objects that a cluster's controllers would create
(a picker's Service, a certificate) are created and reported. docs/gateway.md lists every kind and field.

--status has conditions, parents, and counts of a pool's pods as in document 003
(docs/documents.md#document-003).

Examples:
  windtunnel up -f examples/manifests/document-002      # docs/documents.md#document-002
  windtunnel up -f gateway.yaml -f pool.yaml --dry-run  # what would be started
  windtunnel up -f DIR --otlp http://127.0.0.1:4318     # spans of pickers, sidecars and model servers
  windtunnel up -f DIR --status status.yaml             # conditions, parents and pods, as kubectl would show them
  windtunnel up -f DIR --ui                             # requests on a page, as pickers and servers see them
  kustomize build . | windtunnel up -f -
  windtunnel up -f DIR --output json | jq -r .listeners[0].url
  windtunnel manifests check DIR                        # every mistake, with file, line and what to do`
}

// Run brings the manifests up until an interruption.
func (c *upCmd) Run(o *outside) (err error) {
	host, err := netip.ParseAddr(c.Listen)
	if err != nil {
		return exit.Errorf(exit.Usage, "--listen %q: expected an IP address such as 127.0.0.1", c.Listen)
	}
	files, err := up.Open(c.Files, o.Stdin, c.log(o))
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer files.Close()
	set, err := files.Load()
	if err != nil {
		return exit.ByCause(exit.Input, err)
	}
	for _, w := range set.Warnings {
		fmt.Fprintf(o.Stderr, "windtunnel: %s\n", w)
	}
	if c.DryRun {
		return plan(o, set)
	}
	dir, err := rundir.New(os.TempDir(), rundir.Up, c.log(o))
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer func() {
		if exit.IsReported(err) { // after an interruption the log is not needed
			_ = dir.End(nil)
			return
		}
		err = dir.End(err)
	}()
	ctx, stop := o.Context()
	defer stop()
	note := func(text string) { fmt.Fprintf(o.Stderr, "windtunnel: %s\n", text) }
	options := parts.UpOptions(o)
	options.Objects, options.EnvoyPath, options.Dir, options.Host = set, c.EnvoyPath, dir.Path, host
	options.Note, options.Report, options.Log = note, note, c.log(o)
	if c.AdminPort > 0 {
		options.Admin = net.JoinHostPort("127.0.0.1", strconv.Itoa(c.AdminPort))
	}
	options.Origin = time.Now()
	sender, err := c.Alone(o, true, options.Origin)
	if err != nil {
		return err
	}
	defer sender.End(o)
	options.Recorder, options.Trace = sender.Recorder(), sender.Trace()
	shown := report.Options{Out: io.Discard, Detail: report.Progress, Clock: runClock(options.Origin),
		Version: version.Text()}
	page, err := c.pageFlags.start(&shown, web.Meta{Mode: "live", Envoy: true})
	if err != nil {
		return err
	}
	defer page.stop()
	if page != nil {
		session, err := report.Start(shown)
		if err != nil {
			return err
		}
		defer func() { _, _ = session.End(false) }() // it writes nothing
		page.measure(session)
		options.Recorder = record.Tee(session, options.Recorder)
	}
	u, err := up.Start(ctx, options)
	if err != nil {
		return startError(ctx, err)
	}
	if err := c.ready(o, u); err != nil {
		return errors.Join(err, ended(u.Stop))
	}
	page.describe(func(m *web.Meta) {
		var servers web.Group
		for _, p := range u.Addresses().Pods {
			for _, at := range p.Ports {
				if p.Model != "" {
					servers.Endpoints = append(servers.Endpoints, at)
				}
			}
		}
		slices.Sort(servers.Endpoints)
		m.Scenario, m.Pools = strings.Join(c.Files, " "), []web.Pool{{Groups: []web.Group{servers}}}
	})
	page.parts(func(ctx context.Context, id string) (web.Part, error) { return upPartState(ctx, u, id) })
	page.printLink(o.Stderr)
	working, end := context.WithCancel(ctx)
	defer end()
	var works sync.WaitGroup
	works.Go(func() {
		u.Follow(working, files, func(at string, err error) {
			if err != nil {
				note(fmt.Sprintf("%s was changed and is not used; what was in force stays: %v", at, err))
				return
			}
			note(at + " was changed and is in force")
		})
	})
	unwritten := make(chan error, 1)
	if c.Status != "" {
		works.Go(func() {
			if err := u.WriteStatus(working, c.Status); err != nil {
				unwritten <- exit.Errorf(exit.Environment, "--status: %w", err)
			}
		})
	}
	select {
	case <-ctx.Done():
	case err = <-unwritten:
	case <-u.Envoy.Done():
		err = u.Envoy.Wait()
	}
	end()
	works.Wait()
	return errors.Join(err, ended(u.Stop))
}

// ready prints the addresses of all parts.
func (c *upCmd) ready(o *outside, u *up.Up) error {
	a := u.Addresses()
	if c.Output == "json" {
		return json.NewEncoder(o.Stdout).Encode(a)
	}
	fmt.Fprintf(o.Stdout, "ready in %.2f s: Envoy %s\n", u.Startup.Seconds(), u.Binary.Version)
	for _, l := range a.Listeners {
		line := fmt.Sprintf("  Gateway %s: %s", l.Gateway, l.URL)
		if !strings.HasSuffix(l.URL, ":"+strconv.Itoa(l.Port)) {
			line += fmt.Sprintf(" (port %d of the manifest)", l.Port)
		}
		fmt.Fprintln(o.Stdout, line)
	}
	for _, p := range a.Pickers {
		fmt.Fprintf(o.Stdout, "  pool %s: EPP %s (metrics %s)\n", p.Pool, p.ExtProc, p.Metrics)
	}
	for _, p := range a.Pods {
		var at []string
		for _, address := range p.Ports {
			at = append(at, address)
		}
		slices.Sort(at)
		fmt.Fprintf(o.Stdout, "  pod %s/%s: %s\n", p.Namespace, p.Name, strings.Join(at, ", "))
	}
	_, err := fmt.Fprintf(o.Stdout, "  Envoy's pages: %s\n", a.EnvoyAdmin)
	return err
}

// plan prints the gateways, routes and replicas of the manifests.
func plan(o *outside, s *gateway.Set) error {
	c, err := up.Dry(s, parts.UpOptions(o))
	p, w := c.Program, o.Stdout
	for _, g := range p.Gateways {
		fmt.Fprintf(w, "Gateway %s/%s\n", g.Namespace, g.Name)
		if r := g.Router; r != nil {
			fmt.Fprintf(w, "  body-based router %s/%s sees every request first\n", r.Workload.Namespace,
				r.Workload.Name)
		}
		for _, t := range g.Tables() {
			fmt.Fprintf(w, "  %s\n", t.Name)
			for _, h := range t.Hosts {
				host := h.Domain
				host = cmp.Or(host, "any host")
				fmt.Fprintf(w, "    %s\n", host)
				for _, r := range h.Routes {
					fmt.Fprintf(w, "      %s\n", r)
				}
			}
		}
	}
	for _, line := range c.Taken() {
		fmt.Fprintln(w, line)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	if err != nil {
		return exit.With(exit.Input, err)
	}
	return nil
}

// manifestsCmd reads manifests without starting anything.
type manifestsCmd struct {
	Check manifestsCheckCmd `cmd:"" help:"Report all mistakes in manifests."`
	Show  manifestsShowCmd  `cmd:"" help:"Print routes, and the conditions that a controller would set."`
}

// manifestFiles are the arguments of the commands about manifests.
type manifestFiles struct {
	Files []string `arg:"" name:"file" help:"Manifests: files, directories, or - for standard input."`
}

// compiled returns manifests, and what they compile into, with the mistakes.
func compiled(o *outside, files []string) (*gateway.Set, *gateway.Program, error) {
	s, err := up.Load(files, o.Stdin)
	if err != nil {
		return nil, nil, exit.ByCause(exit.Input, err)
	}
	all, _ := up.Dry(s, parts.UpOptions(o))
	return s, all.Program, nil
}

type manifestsCheckCmd struct{ manifestFiles }

func (c *manifestsCheckCmd) Help() string {
	return `Examples:
  windtunnel manifests check examples/manifests/document-002
  kubectl get gateway,httproute,inferencepool -o yaml | windtunnel manifests check -`
}

// Run prints every mistake, and notes.
func (c *manifestsCheckCmd) Run(o *outside) error {
	s, p, err := compiled(o, c.Files)
	if err != nil {
		return err
	}
	if p.Mistakes != nil {
		return exit.With(exit.Input, p.Mistakes)
	}
	for _, text := range append(s.Warnings, p.Notes...) {
		fmt.Fprintln(o.Stdout, "note:", text)
	}
	fmt.Fprintf(o.Stdout, "no mistakes in %s\n", terminal.Counted(s.Count(), "object"))
	return nil
}

type manifestsShowCmd struct{ manifestFiles }

func (c *manifestsShowCmd) Help() string {
	return `Examples:
  windtunnel manifests show examples/manifests/document-002`
}

// Run prints routes in the order of matching, and all conditions.
func (c *manifestsShowCmd) Run(o *outside) error {
	s, p, err := compiled(o, c.Files)
	if err != nil {
		return err
	}
	_ = plan(o, s) // manifests without a Gateway are no mistake here
	for _, x := range p.Status {
		fmt.Fprint(o.Stdout, x)
	}
	return nil
}
