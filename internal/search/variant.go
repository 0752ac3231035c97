package search

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/terminal"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// Variant is a scenario that is played several times, with other seeds and with other values in some fields.
type Variant struct {
	// Name is its file, or its fields that differ from the file.
	Name string
	// File is the name of the scenario's file, for errors, and Text its content.
	File string
	Text []byte
	// Assumed has the notes of scenario.Scenario.Assumed.
	Assumed []string
	// Settings are the fields with other values than in Text. Overrides are applied after them.
	Settings  []scenario.Setting
	Overrides scenario.Overrides
	// Recorded are requests that replace the workload's, nil without any, and Recording is their file.
	Recorded  []workload.Recorded
	Recording string
}

// ReadVariant reads and checks a scenario's file, - for standard input, or a built-in scenario.
func ReadVariant(stdin io.Reader, file string, set []scenario.Setting, o scenario.Overrides) (v Variant, err error) {
	v = Variant{Settings: set, Overrides: o}
	_, err = v.Read(stdin, file)
	return v, err
}

// Read reads and checks the variant's scenario, as ReadVariant does. After an error of Overrides or the recording, it
// still returns the scenario.
func (v *Variant) Read(stdin io.Reader, file string) (*scenario.Scenario, error) {
	var err error
	if v.File, v.Text, err = ReadText(stdin, file); err != nil {
		return nil, err
	}
	v.Name = v.File
	s, notes, err := v.parse()
	if s != nil {
		v.Assumed = append(slices.Clip(s.Assumed()), notes...)
	}
	return s, err
}

// ReadText returns the text of a scenario's file, - for standard input, or of a built-in scenario, with its name in
// messages.
func ReadText(stdin io.Reader, file string) (name string, text []byte, err error) {
	if name, text = scenario.Builtin(file); text != nil {
		return name, text, nil
	}
	if file == "-" {
		name = "standard input"
		text, err = files.ReadFrom(name, stdin, scenario.MaxFileBytes)
	} else {
		text, err = scenario.ReadText(file)
	}
	return name, text, LoadError(err)
}

// With returns the variant with more fields set.
func (v *Variant) With(settings ...scenario.Setting) Variant {
	w := *v
	w.Settings = slices.Concat(v.Settings, settings)
	w.Name = strings.Join(terminal.Texts(len(settings), func(i int) string { return settings[i].String() }), " ")
	return w
}

// Scenario parses the scenario again, since a run changes it. It adds the replication's number to the seed.
func (v *Variant) Scenario(replication int) (*scenario.Scenario, error) {
	s, _, err := v.parse()
	if err != nil {
		return nil, err
	}
	seed := s.Seed + uint64(replication)
	return s, exit.With(exit.Usage, s.Override(scenario.Overrides{Seed: &seed}))
}

// parse parses the scenario, with notes about its recording.
func (v *Variant) parse() (s *scenario.Scenario, notes []string, err error) {
	if s, err = scenario.Parse(v.File, v.Text, v.Settings...); err != nil {
		return nil, nil, LoadError(err)
	}
	if v.Recorded != nil {
		if notes, err = Resend(s, v.Settings, v.Recorded, v.Recording); err != nil {
			return s, nil, err
		}
	}
	return s, notes, exit.With(exit.Usage, s.Override(v.Overrides))
}

// ParseSettings parses fields with their values, each as path=value. Errors name the flag.
func ParseSettings(flag string, list []string) (out []scenario.Setting, err error) {
	for _, text := range list {
		s, err := scenario.ParseSetting(text)
		if err != nil {
			return nil, exit.Errorf(exit.Usage, "%s: %w", flag, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// LoadError adds an exit code to the error of loading a scenario.
func LoadError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Hint(exit.Input, err, "windtunnel scenario show > my.yaml writes one to start from")
	}
	return exit.With(exit.Input, err)
}

// Result is the result of one run.
type Result struct {
	Sample  *report.Sample
	Summary report.Summary
	Seed    uint64
	Uses    []constraint.Use // of resources other than model servers
}

// Player plays scenarios in virtual time.
type Player struct {
	// Fitter returns a function that fits the trees of a scenario's latency predictors. It is nil if no scenario needs
	// one.
	Fitter func(context.Context, *scenario.Scenario) (fit virtual.Fitter, stop func())
	// Progress, if not nil, is called before runs and as they end, with what they are and how many of them have ended.
	// Row, if not nil, gets a line for each load that was judged and each combination that was played. Several
	// goroutines may call them.
	Progress func(what string, done, of int)
	Row      func(text string)
}

// Counter returns a function that counts one of so many, 0 if the number is unknown, for Progress. It is safe for
// concurrent use.
func (p *Player) Counter(what string, of int) func() {
	if p.Progress != nil {
		p.Progress(what, 0, of)
	}
	var done atomic.Int64
	return func() {
		if n := done.Add(1); p.Progress != nil {
			p.Progress(what, int(n), of)
		}
	}
}

func (p *Player) row(text string) {
	if p.Row != nil {
		p.Row(text)
	}
}

// Variant plays a variant once.
func (p *Player) Variant(ctx context.Context, v *Variant, replication int) (*Result, error) {
	s, err := v.Scenario(replication)
	if err != nil {
		return nil, err
	}
	return p.Play(ctx, s, nil)
}

// Play plays a scenario once. It calls ended, if not nil, for each request as it ends.
func (p *Player) Play(ctx context.Context, s *scenario.Scenario, ended func(*report.Ended)) (*Result, error) {
	t := report.NewTallyFor(s.Workload.Requests)
	t.Expect(s.Workload.Requests)
	t.OnEnded(ended)
	t.Servers(Pools(s, Virtual(s)))
	x := &Result{Seed: s.Seed}
	if err := p.Record(ctx, s, t, t, func(list []constraint.Use) { x.Uses = list }); err != nil {
		return nil, err
	}
	x.Sample, x.Summary = t.Sample(), t.Summary()
	x.Sample.Judge(s.Workload.SLO)
	return x, nil
}

// Record plays a scenario and records its events. The counter receives data that is not in events. Record calls used,
// if not nil, with the use of resources other than model servers.
func (p *Player) Record(ctx context.Context, s *scenario.Scenario, to record.Recorder, t Counter,
	used func([]constraint.Use)) error {
	o := virtual.Options{Gaps: t.Gaps(), Served: t.SetLoads, Used: used,
		Progress: func(int) bool { return ctx.Err() == nil }}
	if p.Fitter != nil {
		var stop func()
		o.Fit, stop = p.Fitter(ctx, s)
		defer stop()
	}
	indexes, err := virtual.Play(s, to, o)
	if c, ok := t.(interface{ SetIndexes([]report.IndexSummary) }); ok {
		c.SetIndexes(indexes)
	}
	if ctx.Err() != nil {
		return exit.Reported(exit.Interrupted, ctx.Err())
	}
	return exit.With(exit.Input, err)
}

// Counter receives the parts of a run that are not in its events: a report.Tally or a report.Session.
type Counter interface {
	Gaps() *gaps.Gaps
	SetLoads(list []report.ServerLoad)
}

// Each calls do for 0 to n-1, on all cores, and stops at an error. It returns the error of the lowest number.
func Each(n int, do func(i int) error) error {
	gc.PlayMany()
	defer gc.Serve()
	errs := make([]error, n)
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !failed.Load(); i = next.Add(1) - 1 {
				if errs[i] = do(int(i)); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}
