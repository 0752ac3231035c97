package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/live/client"
	"github.com/windtunnel/windtunnel/live/up"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/diagnosis"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// Command has the commands for labs, which are stacks with a planted fault.
type Command struct {
	List    listCmd    `cmd:"" help:"List the labs."`
	Start   startCmd   `cmd:"" help:"Start a stack with a fault in it, until Ctrl-C."`
	Hint    hintCmd    `cmd:"" help:"Print the next hint about the fault."`
	Check   checkCmd   `cmd:"" help:"Send fresh traffic, and report whether the fault is repaired."`
	Solve   solveCmd   `cmd:"" help:"Repair the fault, and print the change."`
	Stop    stopCmd    `cmd:"" help:"End the running lab."`
	Shell   shellCmd   `cmd:"" help:"Start a shell in which document 003's commands work as written."`
	Kubectl kubectlCmd `cmd:"" help:"Answer a command of kubectl from the running lab."`
}

// dirOf returns the directory of the user's lab: WINDTUNNEL_LAB, or lab in windtunnel's cache.
func dirOf(o *console.Console) (Dir, error) {
	if dir := o.Getenv("WINDTUNNEL_LAB"); dir != "" {
		path, err := filepath.Abs(dir)
		return Dir(path), exit.With(exit.Environment, err)
	}
	cache, err := cachedir.Dir(o.Getenv)
	if err != nil {
		return "", exit.With(exit.Environment, err)
	}
	return Dir(filepath.Join(cache, "lab")), nil
}

// running returns the directory and the state of the running lab.
func running(o *console.Console) (d Dir, s State, l *Lab, err error) {
	if d, err = dirOf(o); err != nil {
		return d, s, nil, err
	}
	if s, err = d.State(); err == nil {
		l, err = Find(s.Lab)
	}
	return d, s, l, coded(err)
}

// coded adds an exit code.
func coded(err error) error {
	if errors.Is(err, ErrNone) {
		return exit.Hint(exit.Environment, err, "windtunnel lab list prints the names")
	}
	return exit.ByCause(exit.Input, err)
}

type listCmd struct{ format }

func (listCmd) Help() string {
	return `Examples:
  windtunnel lab list
  windtunnel lab list --output json | jq -r .[].name`
}

// Run prints the labs by sections of document 003's guide.
func (c *listCmd) Run(o *console.Console) error {
	type row struct {
		Name  string `json:"name"`
		Area  string `json:"area"`
		Title string `json:"title"`
		Check string `json:"check"`
	}
	labs, err := All()
	if err != nil {
		return err
	}
	rows := []row{}
	for _, l := range labs {
		rows = append(rows, row{l.Name, l.Area, l.Title, l.Play})
	}
	return c.print(o, rows, func(w io.Writer) error {
		area := ""
		for _, r := range rows {
			if r.Area != area {
				area = r.Area
				fmt.Fprintf(w, "%s\n", area)
			}
			fmt.Fprintf(w, "  %-20s %s\n", r.Name, r.Title)
		}
		return nil
	})
}

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
	l, err := Find(c.Name)
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
func (c *startCmd) serve(ctx context.Context, o *console.Console, d Dir, l *Lab, host netip.Addr) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	logs := NewLogs(d)
	defer logs.Close()
	texts, err := l.Files(nil)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Fill(texts), os.WriteFile(d.Scenario(), []byte(l.Traffic), 0o600), d.Link()); err != nil {
		return exit.With(exit.Environment, err)
	}
	quiet := *o
	quiet.Stderr = io.Discard // the documents' old names of flags are wanted here
	options := up.Options{Sidecar: parts.SidecarOptions(&quiet), Picker: parts.PickerOptions(&quiet),
		Predictor: parts.PredictorOptions, Trainer: parts.UpTrainer(&quiet)}
	options.Log = logs.Of("windtunnel", "up", "up")
	files, err := up.Open([]string{d.Manifests()}, nil, options.Log)
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	defer files.Close()
	if options.Objects, err = files.Load(); err != nil {
		return err
	}
	s := State{Lab: l.Name, Since: time.Now(), Applied: files.Digest()}
	options.EnvoyPath, options.Dir, options.Host, options.Origin = c.EnvoyPath, d.Run(), host, s.Since
	options.Logs = logs.Of
	options.Note = func(text string) { logs.Event("Warning", "Note", strings.ReplaceAll(text, d.Manifests()+"/", "")) }
	options.Tell = func(text string) { logs.Event("Normal", "Told", text) }
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
			return exit.Told(exit.Interrupted, err)
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
			if _, err := playLive(ctx, d); err != nil && ctx.Err() == nil {
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

func (c *startCmd) ready(o *console.Console, d Dir, l *Lab, s *State) error {
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

// playLive sends the lab's traffic to a running stack, with prompts of its own each time.
func playLive(ctx context.Context, d Dir) (report.Summary, error) {
	var none report.Summary
	at, err := d.State()
	if err != nil {
		return none, err
	}
	s, err := scenario.Load(d.Scenario())
	if err != nil {
		return none, err
	}
	seed := rand.Uint64N(1 << 40) //nolint:gosec // keeps the prompts of runs apart
	if err := s.Override(scenario.Overrides{Seed: &seed}); err != nil {
		return none, err
	}
	began := time.Now()
	clock := func() machine.Time { return machine.FromDuration(time.Since(began)) }
	session, err := report.Start(quietly(s, clock))
	if err != nil {
		return none, err
	}
	load := s.Load()
	sent := client.Run(ctx, client.Options{Target: strings.TrimPrefix(at.Addresses.Listeners[0].URL, "http://"),
		HTTP2: load.HTTP2, Chunked: load.Chunked, Timeout: load.Timeout, Requests: load.Requests.Requests,
		Concurrency: load.Concurrency, Workload: load.Requests, Recorder: session, Now: clock})
	sum, err := session.End(ctx.Err() != nil)
	return sum, errors.Join(sent, err)
}

// quietly returns the options for a run of s that prints nothing. clock is nil in virtual time.
func quietly(s *scenario.Scenario, clock func() machine.Time) report.Options {
	return report.Options{Out: io.Discard, Detail: report.Quiet, Clock: clock, PrefixCache: s.CachesPrefixes(),
		Scenario: s.Name, Seed: s.Seed, Requests: s.Workload.Requests, InFlight: s.Workload.Requests,
		SLO: s.Workload.SLO,
		Judge: func(sum report.Summary) []report.Expectation {
			return s.Expectations.Check(func(path ...string) (float64, bool) {
				v, found, _ := sum.Figure(path)
				return v, found
			})
		}}
}

type checkCmd struct{ format }

func (checkCmd) Help() string {
	return `Waits until the edited manifests are in force, plays the lab's traffic, and compares figures: answers,
times, and what metrics count. Labs about latency play it in virtual time with the edited manifests, the others
live. The exit code is 0 if the fault is repaired, and 1 if it is not.

Examples:
  windtunnel lab check
  windtunnel lab check --output json | jq .repaired`
}

// verdict is the output of check.
type verdict struct {
	Lab          string               `json:"lab"`
	Repaired     bool                 `json:"repaired"`
	Expectations []record.Expectation `json:"expectations"`
}

// Run compares fresh traffic with what the lab expects.
func (c *checkCmd) Run(o *console.Console) error {
	d, _, l, err := running(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	s, err := d.Applied(ctx)
	if err != nil {
		return coded(err)
	}
	v := verdict{Lab: l.Name, Repaired: true}
	if s.Refused != "" {
		v.Expectations = []record.Expectation{{What: "manifests", Expected: "in force", Found: s.Refused}}
	} else if v.Expectations, err = figures(ctx, d, l, s); err != nil {
		return coded(err)
	}
	for _, e := range v.Expectations {
		v.Repaired = v.Repaired && e.OK
	}
	err = c.print(o, v, func(w io.Writer) error {
		fmt.Fprintln(w, map[bool]string{true: "repaired", false: "not repaired yet"}[v.Repaired])
		for _, e := range v.Expectations {
			fmt.Fprintf(w, "  %-4s %s: found %s, expected %s\n", map[bool]string{true: "ok", false: "no"}[e.OK], e.What,
				e.Found, e.Expected)
		}
		return nil
	})
	if err == nil && !v.Repaired {
		err = exit.Told(exit.Failed, errors.New("not repaired"))
	}
	return err
}

// figures plays the lab's traffic, and returns what it expects with what was found.
func figures(ctx context.Context, d Dir, l *Lab, s State) ([]record.Expectation, error) {
	if l.Play == "virtual" {
		return PlayVirtually(d, l)
	}
	before, err := l.Values(ctx, s)
	if err != nil {
		return nil, err
	}
	sum, err := playLive(ctx, d)
	if err != nil {
		return nil, err
	}
	counted, err := l.Judge(ctx, s, before)
	if err != nil {
		return nil, err
	}
	probed, err := l.Probe(ctx, s)
	return append(append(sum.Expectations, counted...), probed...), err
}

// PlayVirtually plays the lab's traffic in virtual time, with the manifests as they are now. It adds the lab's leaf to
// the expectations: windtunnel diagnose must not find it any more.
func PlayVirtually(d Dir, l *Lab) ([]record.Expectation, error) {
	s, err := scenario.Load(d.Scenario())
	if err != nil {
		return nil, err
	}
	r, err := diagnosis.Start(quietly(s, nil))
	if err != nil {
		return nil, err
	}
	if _, err := virtual.Play(s, r, virtual.Options{Gaps: r.Gaps(), Served: r.SetLoads}); err != nil {
		return nil, errors.Join(err, r.Abandon())
	}
	facts, sum, err := r.Facts(false)
	if err != nil || l.Leaf == "" {
		return sum.Expectations, err
	}
	facts.Conversational = s.Workload.Conversations.Turns.Quantile(1) > 1
	e := record.Expectation{What: "leaf " + l.Leaf + " of windtunnel diagnose", Expected: "gone", Found: "gone",
		OK: true}
	if x := diagnose.Of(facts).Leaf(diagnose.Leaf(l.Leaf)); x != nil {
		e.Found, e.OK = string(x.Sure)+": "+strings.Join(x.Evidence, "; "), false
	}
	return append(sum.Expectations, e), nil
}

type hintCmd struct{ format }

func (hintCmd) Help() string {
	return `Each call prints one hint more, and at last document 003's commands that show the cause.

Examples:
  windtunnel lab hint`
}

// Run prints the hints so far.
func (c *hintCmd) Run(o *console.Console) error {
	d, _, l, err := running(o)
	if err != nil {
		return err
	}
	n, err := d.Hints(1)
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	x := struct {
		Hints []string `json:"hints"`
		Look  []string `json:"look,omitempty"`
	}{Hints: l.Hints[:min(n, len(l.Hints))]}
	if n > len(l.Hints) {
		x.Look = l.Look
	}
	return c.print(o, x, func(w io.Writer) error {
		for i, h := range x.Hints {
			fmt.Fprintf(w, "%d. %s\n", i+1, h)
		}
		for i, line := range x.Look {
			if i == 0 {
				fmt.Fprintln(w, "look with:")
			}
			fmt.Fprintln(w, "  "+line)
		}
		return nil
	})
}

type solveCmd struct {
	Remedy string `arg:"" optional:"" help:"Which of the lab's remedies. Left out: the first."`
	format
}

func (solveCmd) Help() string {
	return `Writes the manifests again, with a remedy, which discards edits of your own. It prints what the remedy does,
and the names of the lab's other remedies.

Examples:
  windtunnel lab solve
  windtunnel lab solve max-num-seqs`
}

// Run writes the manifests with the remedy.
func (c *solveCmd) Run(o *console.Console) error {
	d, _, l, err := running(o)
	if err != nil {
		return err
	}
	r, err := l.Remedy(c.Remedy)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	texts, err := l.Files(r)
	if err == nil {
		err = d.Fill(texts)
	}
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	edits := r.Edits
	if len(edits) == 0 {
		for _, e := range l.Fault {
			edits = append(edits, Edit{File: e.File, Old: e.New, New: e.Old})
		}
	}
	x := struct {
		Remedy string   `json:"remedy"`
		Does   string   `json:"does"`
		Edits  []Edit   `json:"edits"`
		Others []string `json:"others,omitempty"`
	}{Remedy: r.Name, Does: r.Does, Edits: edits}
	for i := range l.Remedies {
		if n := l.Remedies[i].Name; n != r.Name {
			x.Others = append(x.Others, n)
		}
	}
	return c.print(o, x, func(w io.Writer) error {
		fmt.Fprintf(w, "%s: %s\n", x.Remedy, x.Does)
		for _, e := range x.Edits {
			fmt.Fprintf(w, "%s\n", e.File)
			for sign, text := range map[string]string{"-": e.Old, "+": e.New} {
				for line := range strings.Lines(text) {
					fmt.Fprintf(w, "  %s %s\n", sign, strings.TrimRight(line, "\n"))
				}
			}
		}
		if len(x.Others) > 0 {
			fmt.Fprintf(w, "other remedies: %s\n", strings.Join(x.Others, ", "))
		}
		return nil
	})
}

type stopCmd struct{}

func (stopCmd) Help() string {
	return `Examples:
  windtunnel lab stop`
}

// Run ends the running lab and waits for its end.
func (c *stopCmd) Run(o *console.Console) error {
	d, err := dirOf(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	return coded(d.Stop(ctx))
}

type shellCmd struct {
	Command string `arg:"" optional:"" help:"A command line for the shell, as sh -c takes it. Left out: an interactive shell."`
}

func (shellCmd) Help() string {
	return `The shell is the one of SHELL. On its PATH, kubectl and nvidia-smi answer from the running lab, and nothing
reaches a cluster. docs/labs.md lists the commands.

Examples:
  windtunnel lab shell
  windtunnel lab shell 'kubectl logs -n llm-d-system -l app=endpoint-picker | grep "scheduling_duration"'`
}

// Run runs a shell until its end.
func (c *shellCmd) Run(o *console.Console) error {
	d, _, _, err := running(o)
	if err != nil {
		return err
	}
	cmd := exec.Command(cmp.Or(o.Getenv("SHELL"), "sh"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	if c.Command != "" {
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", c.Command}
	} else if o.Terminal {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // the shell needs the terminal itself
	}
	cmd.Env = append(os.Environ(), "PATH="+d.Bin()+string(filepath.ListSeparator)+o.Getenv("PATH"))
	return commandError(cmd.Run())
}

// commandError returns an error with the exit code of a program, which has printed the reason.
func commandError(err error) error {
	var ran *exec.ExitError
	if errors.As(err, &ran) {
		return exit.Told(exit.Code(ran.ExitCode()), err)
	}
	var inPod ExitError
	if errors.As(err, &inPod) {
		return exit.Told(exit.Code(inPod), err)
	}
	return exit.ByCause(exit.Input, err)
}

type kubectlCmd struct {
	Args []string `arg:"" optional:"" help:"A command of kubectl with its arguments and flags."`
}

func (kubectlCmd) Help() string {
	return `What kubectl does in windtunnel lab shell: get, describe, logs, exec, top, apply, edit and port-forward,
as far as document 003 uses them (docs/documents.md#document-003). Without -n it looks in all namespaces.

Examples:
  windtunnel lab kubectl get pods -o wide
  windtunnel lab kubectl exec llm-decode-worker-0 -- curl localhost:8001/metrics`
}

// Run answers a command line of kubectl, or of nvidia-smi if that is its first word.
func (c *kubectlCmd) Run(o *console.Console) error {
	d, err := dirOf(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	k := Kubectl{Dir: d, In: o.Stdin, Out: o.Stdout, Err: o.Stderr,
		Edit: func(ctx context.Context, path string) error {
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", cmp.Or(o.Getenv("EDITOR"), "vi")+` "$1"`, "sh", path)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, os.Stdout, os.Stderr
			return cmd.Run()
		}}
	if len(c.Args) > 0 && c.Args[0] == "nvidia-smi" {
		return coded(k.SMI(ctx, c.Args[1:]))
	}
	err = k.Run(ctx, c.Args)
	if errors.Is(err, ErrNone) {
		return coded(err)
	}
	return commandError(err)
}

// ended stops a stack, although the command's context may have ended.
func ended(u *up.Up) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return u.Stop(ctx)
}

// note prints a note for the user.
func note(o *console.Console, text string) { fmt.Fprintf(o.Stderr, "windtunnel: note: %s\n", text) }

// format is the form of a command's output.
type format struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"text for people, or json."`
}

// print writes a result as JSON, or by a function.
func (f format) print(o *console.Console, result any, text func(to io.Writer) error) error {
	if f.Output != "json" {
		return text(o.Stdout)
	}
	enc := json.NewEncoder(o.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(result)
}

// CommandLine returns the command line for a program name by which windtunnel lab shell calls windtunnel.
func CommandLine(program string, args []string) []string {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case "kubectl":
		return append([]string{"lab", "kubectl"}, args...)
	case "nvidia-smi":
		return append([]string{"lab", "kubectl", "nvidia-smi"}, args...)
	}
	return args
}

// Of returns the command for a command line of kubectl, whose flags are not windtunnel's; nil for other command lines.
func Of(args []string) interface {
	Run(o *console.Console) error
} {
	if len(args) > 2 && args[0] == "lab" && args[1] == "kubectl" && args[2] != "--help" {
		return &kubectlCmd{Args: args[2:]}
	}
	return nil
}
