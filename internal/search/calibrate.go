package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/calibrate"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/version"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Prober sends probes to a model server.
type Prober interface {
	// Discover reads what the server reports about itself. Model is the model to look for, or "" for the first one.
	Discover(ctx context.Context, model string) (calibrate.Server, error)
	// Probe sends a probe's requests and waits for their answers.
	Probe(ctx context.Context, x calibrate.Probe) (calibrate.Result, error)
}

// CalibrateOptions say which model server is measured, how far, and where its step times are written.
type CalibrateOptions struct {
	Prober Prober
	// Endpoint is the server's address or URL.
	Endpoint string
	// Model is the model to ask for, or "" for the first that the server serves.
	Model string
	// File is the file of step times. Force overwrites it, and also measures a server that is busy.
	File  string
	Force bool
	// Accelerator and TP, accelerators per layer, describe the server's hardware in the file.
	Accelerator string
	TP          int
	Limits      calibrate.Limits
	// Begin is called before the first probe, and Progress before each kind of probe.
	Begin    func(calibrate.Server)
	Progress func(percent int, probe string)
}

func (c *CalibrateOptions) check() error {
	if err := c.Limits.Check(); err != nil {
		return exit.With(exit.Usage, err)
	}
	if c.TP < 1 || c.TP > 64 {
		return exit.Errorf(exit.Usage, "--tensor-parallel-size: found %d; expected 1 to 64", c.TP)
	}
	if err := checkWritable(c.File, c.Force); err != nil {
		return err
	}
	if scheme, _, given := strings.Cut(c.Endpoint, "://"); given && scheme != "http" && scheme != "https" {
		return exit.Errorf(exit.Usage, "--endpoint: found %q; expected an address such as 127.0.0.1:8000, or a URL "+
			"that begins with http:// or https://", c.Endpoint)
	}
	return nil
}

// checkWritable returns an error if a file cannot be written, or would be overwritten without force. Measuring and
// fitting take minutes, so this is checked first. A failure must not leave an empty file.
func checkWritable(file string, force bool) error {
	if _, err := os.Stat(file); err == nil && !force {
		return exit.Hint(exit.Usage, fmt.Errorf("%s exists already", file),
			"choose another file with --file, or overwrite it with --force")
	}
	probe, err := os.CreateTemp(filepath.Dir(file), ".windtunnel-*")
	if err != nil {
		return exit.Errorf(exit.Input, "--file %s cannot be written: %w", file, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return exit.Errorf(exit.Input, "--file: %w", err)
	}
	return nil
}

// Calibration is the result of Calibrate.
type Calibration struct {
	fit      *calibrate.Fit
	file     string
	tooShort error // why an interrupted measurement has no fit
}

// Calibrate measures a model server and writes its step times to a file. After an interruption it writes what was
// measured until then, if that is enough, and returns an error as well.
func Calibrate(ctx context.Context, c CalibrateOptions) (*Calibration, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	began := time.Now()
	server, err := c.Prober.Discover(ctx, c.Model)
	switch {
	case ctx.Err() != nil:
		return nil, exit.Reported(exit.Interrupted, ctx.Err())
	case err != nil:
		return nil, exit.Hint(exit.Environment, fmt.Errorf("endpoint %q: %w", c.Endpoint, err),
			"is it up, and does it speak OpenAI's API?")
	case server.Busy > 0 && !c.Force:
		return nil, exit.Hint(exit.Environment,
			fmt.Errorf("endpoint %q serves %d requests, which would distort the measurement", c.Endpoint, server.Busy),
			"wait until it is idle, or --force")
	}
	c.Limits.KVTokens, c.Limits.ModelLen = server.KVTokens, server.ModelLen
	if server.ModelLen > 0 {
		c.Limits.MaxPrompt = min(c.Limits.MaxPrompt, server.ModelLen-1)
	}
	plan, err := calibrate.New(c.Limits, machine.FromDuration(server.Overhead))
	if err != nil {
		return nil, exit.Errorf(exit.Environment, "endpoint %q: %w", c.Endpoint, err)
	}
	c.Begin(server)
	err = c.probe(ctx, plan)
	interrupted := exit.Reported(exit.Interrupted, ctx.Err())
	if err != nil && interrupted == nil {
		return nil, exit.With(exit.Environment, err)
	}
	fit, err := plan.Fit()
	switch {
	case err != nil && interrupted != nil:
		return &Calibration{tooShort: err}, interrupted
	case err != nil:
		return nil, exit.With(exit.Environment, err)
	}
	about := calibrate.About{Model: server.Model, System: c.Accelerator, Backend: "measured", TP: c.TP, Lines: []string{
		fmt.Sprintf("Step times of %s, measured at %s by windtunnel %s on %s.", server.Model, c.Endpoint,
			version.Text(), began.UTC().Format(time.RFC3339)),
		fmt.Sprintf("The server is version %s; a request that computes nothing took %s, which is left out.",
			server.Version, server.Overhead.Round(time.Microsecond)),
	}}
	about.Lines = append(about.Lines, fit.Quality()...)
	if interrupted != nil {
		about.Lines = append(about.Lines, "The measurement was interrupted.")
	}
	out, err := os.Create(c.File)
	if err == nil {
		err = errors.Join(fit.Write(out, &about), out.Close())
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--file: %w", err)
	}
	return &Calibration{fit: fit, file: c.File}, interrupted
}

// probe sends all probes of the plan.
func (c *CalibrateOptions) probe(ctx context.Context, plan *calibrate.Plan) error {
	name := ""
	for {
		x, more := plan.Next()
		if !more {
			return nil
		}
		if x.Name != name {
			name = x.Name
			left, of := plan.Left()
			c.Progress(100*(of-left)/of, name)
		}
		r, err := c.Prober.Probe(ctx, x)
		if err == nil {
			err = plan.Took(r)
		}
		if err != nil {
			return err
		}
	}
}

// Write prints the table and its accuracy for people, on lines of so many columns; 0 columns never break.
func (x *Calibration) Write(to io.Writer, columns int) error {
	if x.tooShort != nil {
		_, err := fmt.Fprintf(to, "interrupted: too little was measured to write a table: %v\n", x.tooShort)
		return err
	}
	if err := x.fit.WriteTable(to); err != nil {
		return err
	}
	text := x.fit.Sentences() + fmt.Sprintf(
		"written to %s; a scenario takes it with pools[].modelServer.stepTimes: %s\n", x.file, x.file)
	return terminal.WriteWrapped(to, text, 2, columns)
}
