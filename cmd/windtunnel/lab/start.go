package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/lab"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/live/up"
)

type startCmd struct {
	Name      string `arg:"" help:"The lab, a name of windtunnel lab list."`
	Listen    string `default:"127.0.0.1" placeholder:"IP" help:"Address of the Gateway."`
	AdminPort int    `placeholder:"N" help:"Port of Envoy's own pages. Left out: 19000, or a free one."`
	EnvoyPath string `placeholder:"FILE" fromenv:"ENVOY_PATH" help:"The Envoy to use. Left out: one on PATH or in the cache, or a download into the cache."`
	format
}

func (startCmd) Help() string {
	return `Writes manifests with a fault, starts them as windtunnel up does, sends traffic, and prints a symptom. Edits
of the manifests take effect within a second. In another terminal, windtunnel lab shell looks with document
003's commands (docs/documents.md#document-003), windtunnel lab check verifies a repair by fresh traffic, and
lab hint gives hints. One lab runs at a time. Ctrl-C or lab stop ends it and removes its files.
docs/labs.md has more.

Examples:
  windtunnel lab start ssrf-pool-name
  windtunnel lab start ssrf-pool-name --output json | jq -r .manifests`
}

// started is the output of start.
type started struct {
	Lab       string `json:"lab"`
	Title     string `json:"title"`
	Symptom   string `json:"symptom"`
	Gateway   string `json:"gateway"`
	Manifests string `json:"manifests"`
	Bin       string `json:"bin"`
	Admin     string `json:"envoyAdmin"`
}

// Run runs the lab until an interruption or the end by windtunnel lab stop.
func (c *startCmd) Run(o *console.Console) (err error) {
	l, err := lab.Find(c.Name)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	host, err := netip.ParseAddr(c.Listen)
	if err != nil {
		return exit.Errorf(exit.Usage, "--listen %q: expected an IP address such as 127.0.0.1", c.Listen)
	}
	d, err := dirOf(o)
	if err != nil {
		return err
	}
	dir, err := rundir.Only(string(d))
	if errors.Is(err, rundir.ErrHeld) {
		running := "a lab"
		if s, err := d.State(); err == nil {
			running = "lab " + s.Lab
		}
		return exit.Hint(exit.Environment, fmt.Errorf("%s is running; expected one lab at a time", running),
			"windtunnel lab stop ends it")
	}
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer func() { err = errors.Join(err, dir.End(nil)) }()
	ctx, stop := o.Context()
	defer stop()
	return c.serve(ctx, o, d, l, host)
}

// serve runs a lab in its directory.
func (c *startCmd) serve(ctx context.Context, o *console.Console, d lab.Dir, l *lab.Lab, host netip.Addr) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	logs := lab.NewLogs(d)
	defer logs.Close()
	texts, err := l.Files(nil)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Fill(texts), os.WriteFile(d.Scenario(), []byte(l.Traffic), 0o600), d.Link()); err != nil {
		return exit.With(exit.Environment, err)
	}
	options := optionsOf(o)
	options.Log = logs.Of("windtunnel", "up", "up")
	files, err := up.Open([]string{d.Manifests()}, nil, options.Log)
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer files.Close()
	if options.Objects, err = files.Load(); err != nil {
		return err
	}
	s := lab.State{Lab: l.Name, Since: time.Now(), Applied: files.Digest()}
	options.EnvoyPath, options.Dir, options.Host, options.Origin = c.EnvoyPath, d.Run(), host, s.Since
	options.Logs = logs.Of
	options.Note = func(text string) { logs.Event("Warning", "Note", strings.ReplaceAll(text, d.Manifests()+"/", "")) }
	options.Report = func(text string) { logs.Event("Normal", "Reported", text) }
	options.Admin = freeAt(cmp.Or(c.AdminPort, 19000), c.AdminPort > 0)
	if err := os.Mkdir(d.Run(), 0o700); err != nil {
		return exit.With(exit.Environment, err)
	}
	stopping, err := d.OnStop(options.Log, end)
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer stopping.Close()
	u, err := up.Start(ctx, options)
	if err != nil {
		if ctx.Err() != nil {
			return exit.Reported(exit.Interrupted, err)
		}
		return exit.ByCause(exit.Environment, err)
	}
	s.Addresses = u.Addresses()
	if err := errors.Join(d.Write(s), c.ready(o, d, l, &s)); err != nil {
		return errors.Join(err, ended(u))
	}
	var works sync.WaitGroup
	works.Go(func() {
		u.Follow(ctx, files, func(_ string, err error) {
			s.Addresses, s.Applied, s.Refused = u.Addresses(), files.Digest(), ""
			if err != nil {
				s.Refused = err.Error()
				logs.Event("Warning", "Refused", s.Refused)
				note(o, "the edited manifests are not used; the last good ones stay in force: "+s.Refused)
			} else {
				logs.Event("Normal", "Applied", "the edited manifests are in force")
				note(o, "the edited manifests are in force")
			}
			if err := d.Write(s); err != nil {
				note(o, err.Error())
			}
		})
	})
	works.Go(func() { _ = u.WriteStatus(ctx, d.Status()) }) // the status is missing then
	works.Go(func() {
		for pause.For(ctx, 100*time.Millisecond) {
			if _, err := lab.PlayLive(ctx, d); err != nil && ctx.Err() == nil {
				note(o, "no traffic: "+err.Error())
				return
			}
		}
	})
	select {
	case <-ctx.Done():
	case <-u.Envoy.Done():
		err = u.Envoy.Wait()
	}
	end()
	works.Wait()
	return errors.Join(err, ended(u))
}

// optionsOf returns how a lab reads the command lines of its containers.
func optionsOf(o *console.Console) up.Options {
	quiet := *o
	quiet.Stderr = io.Discard // the documents' old names of flags are wanted here
	return parts.UpOptions(&quiet)
}

// freeAt returns the address of a port of the loopback, or of any port if it is in use and need not be that one.
func freeAt(port int, wanted bool) string {
	at := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	if l, err := net.Listen("tcp", at); err == nil {
		l.Close()
	} else if !wanted {
		return ""
	}
	return at
}

func (c *startCmd) ready(o *console.Console, d lab.Dir, l *lab.Lab, s *lab.State) error {
	x := started{l.Name, l.Title, l.Symptom, s.Addresses.Listeners[0].URL, d.Manifests(), d.Bin(),
		s.Addresses.EnvoyAdmin}
	return c.print(o, x, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, `%s
  Gateway       %s
  Envoy's pages %s
  manifests     %s   (edit them here, or with kubectl edit)

in another terminal:
  windtunnel lab shell    a shell with kubectl and nvidia-smi
  windtunnel lab check    is it repaired?
  windtunnel lab hint     a hint
  windtunnel lab solve    the repair
Ctrl-C ends the 
`, x.Symptom, x.Gateway, x.Admin, x.Manifests)
		return err
	})
}

// ended stops a stack, although the command's context may have ended.
func ended(u *up.Up) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return u.Stop(ctx)
}
