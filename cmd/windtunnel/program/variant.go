package program

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// variant is a scenario that is played several times: with other seeds, and with
// other values in some of its fields.
type variant struct {
	// Name is what it is called: its file, and what is set in it.
	Name     string
	file     string
	text     []byte
	settings []scenario.Setting
	flags    *changeFlags
}

// readVariant reads a scenario's file, - for standard input, "" for the embedded
// one, and sees whether it can be played.
func readVariant(o *outside, file string, flags *changeFlags) (v variant, err error) {
	v = variant{Name: file, file: file, flags: flags}
	switch file {
	case "":
		v.Name, v.file, v.text = scenario.EmbeddedFile, scenario.EmbeddedFile, scenario.EmbeddedText()
	case "-":
		v.Name, v.file = "standard input", "standard input"
		v.text, err = files.ReadFrom(v.file, o.Stdin, scenario.MaxFileBytes)
	default:
		v.text, err = files.Read(file, scenario.MaxFileBytes)
	}
	if err != nil {
		return v, loadError(err)
	}
	_, err = v.scenario(0)
	return v, err
}

// with is the variant with more fields set.
func (v *variant) with(settings ...scenario.Setting) variant {
	w := *v
	w.settings = slices.Concat(v.settings, settings)
	words := make([]string, len(settings))
	for i, s := range settings {
		words[i] = s.String()
	}
	w.Name = strings.Join(words, " ")
	return w
}

// set gives fields of the variant itself other values, each as path=value, and sees whether
// it can be played so.
func (v *variant) set(list []string) error {
	for _, text := range list {
		one, err := scenario.ParseSetting(text)
		if err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--set: %w", err))
		}
		v.settings = append(v.settings, one)
	}
	_, err := v.scenario(0)
	return err
}

// scenario reads it anew: what plays a scenario keeps things in it. The number is
// that of the replication, which is added to the seed.
func (v *variant) scenario(replication int) (*scenario.Scenario, error) {
	s, err := scenario.Parse(v.file, v.text, v.settings...)
	if err != nil {
		return nil, loadError(err)
	}
	if err := v.flags.change(s); err != nil {
		return nil, err
	}
	seed := s.Seed + uint64(replication)
	return s, exit.With(exit.Usage, s.Override(scenario.Overrides{Seed: &seed}))
}

// result is what came of one run.
type result struct {
	sample  *report.Sample
	summary report.Summary
	seed    uint64
	uses    []constraint.Use // of all but model servers
}

// play plays the scenario once, in virtual time, and keeps what it came to.
func (v *variant) play(ctx context.Context, replication int) (*result, error) {
	s, err := v.scenario(replication)
	if err != nil {
		return nil, err
	}
	return playOnce(ctx, s, nil)
}

// playOnce plays a scenario; ended, if not nil, is told of each request as it ends.
func playOnce(ctx context.Context, s *scenario.Scenario, ended func(*report.Ended)) (*result, error) {
	t := report.NewTallyFor(s.Workload.Requests)
	t.Expect(s.Workload.Requests)
	t.Each(ended)
	t.Servers(reported(s, func(pool int) []string { return virtual.Endpoints(pool, &s.Pools[pool]) }))
	x := &result{seed: s.Seed}
	if err := playTo(ctx, s, t, t, func(list []constraint.Use) { x.uses = list }); err != nil {
		return nil, err
	}
	x.sample, x.summary = t.Sample(), t.Summary()
	x.sample.Judge(report.SLO(s.Workload.SLO))
	return x, nil
}

// playTo plays a scenario in virtual time for a reader of its events, and has a tally told
// of the rest. used, if not nil, is told what was in use besides the model servers.
func playTo(ctx context.Context, s *scenario.Scenario, to flow.Recorder, t *report.Tally,
	used func([]constraint.Use)) error {
	fit, end := fitter(ctx, playedBy(ctx), s)
	defer end()
	_, err := virtual.Play(s, to,
		virtual.Options{Gaps: t.Gaps(), Served: t.Loaded, Used: used,
			Progress: func(int) bool { return ctx.Err() == nil }, Fit: fitVirtually(ctx, fit)})
	if ctx.Err() != nil {
		return exit.Told(exit.Interrupted, ctx.Err())
	}
	return exit.With(exit.Input, err)
}

// player comes to a result, for each replication.
type player func(ctx context.Context, replication int) (*result, error)

// playerOf is that of a recording.
func playerOf(file string) player {
	return func(context.Context, int) (*result, error) { return recorded(file) }
}

// each does n things on as many cores as there are, until one of them fails, which
// is told: the first, by number.
func each(n int, do func(i int) error) error {
	gc.PlayMany()
	defer gc.Serve()
	errs := make([]error, n)
	var next, failed int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				if i >= n || failed > 0 {
					mu.Unlock()
					return
				}
				mu.Unlock()
				if errs[i] = do(i); errs[i] != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// recorded is what a recording came to.
func recorded(file string) (*result, error) {
	t := report.NewTallyFor(0)
	told, err := report.ReadFile(file, func(e flow.Event) error { t.Record(e); return nil })
	switch {
	case err != nil:
		return nil, inputError(err)
	case t.Summary().Requests == 0:
		return nil, exit.With(exit.Input,
			fmt.Errorf("%s has no request; expected a recording that windtunnel run or sim wrote with --record", file))
	}
	x := &result{sample: t.Sample(), summary: t.Summary()}
	if told != nil {
		x.seed = told.Seed
		x.sample.Judge(told.SLO.SLO())
	}
	return x, nil
}

// isRecording tells whether a file's name is that of a recording.
func isRecording(file string) bool {
	return strings.HasSuffix(file, ".gz") || strings.HasSuffix(file, ".ndjson") || strings.HasSuffix(file, ".jsonl")
}
