package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/silicon"
)

// maxResultBytes limits the size of a file of benchmark results, which may have the times of each token.
const maxResultBytes = 256 << 20

// CalibrateResultsOptions say which benchmark results a calibration is fitted to, and where it is written.
type CalibrateResultsOptions struct {
	// Results are files of benchmark results. Defaults replace fields that these lack.
	Results  []string
	Defaults silicon.Defaults
	// File is the calibration file. Force overwrites it.
	File  string
	Force bool
	// Guesses makes the fit begin at guesses, and not at the parameters that come with windtunnel.
	Guesses  bool
	Progress func(percent int, what string)
}

// CalibratedResults is the result of CalibrateResults.
type CalibratedResults struct {
	fit  *silicon.Calibrated
	file string
}

// CalibrateResults fits the parameters of the step times and of the API server to benchmark results, and writes them to
// a file.
func CalibrateResults(ctx context.Context, c CalibrateResultsOptions) (*CalibratedResults, error) {
	if err := checkWritable(c.File, c.Force); err != nil {
		return nil, err
	}
	rows, err := ReadResults(c.Results, c.Defaults)
	if err != nil {
		return nil, err
	}
	prior := latency.BuiltinCalibration()
	if c.Guesses {
		prior = latency.PriorCalibration()
	}
	fit, err := silicon.Calibrate(ctx, rows, &prior, c.Progress)
	switch {
	case ctx.Err() != nil:
		return nil, exit.Reported(exit.Interrupted, ctx.Err())
	case err != nil:
		return nil, exit.With(exit.Input, err)
	}
	out, err := os.Create(c.File)
	if err == nil {
		err = errors.Join(fit.WriteFile(out), out.Close())
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--file: %w", err)
	}
	return &CalibratedResults{fit, c.File}, nil
}

// ReadResults reads files of benchmark results. Errors name file, line and field.
func ReadResults(names []string, d silicon.Defaults) (rows []silicon.Row, err error) {
	for _, name := range names {
		text, err := files.Read(name, maxResultBytes)
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		some, err := silicon.Read(name, text, d)
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// Write prints the errors and the parameters for people.
func (x *CalibratedResults) Write(to io.Writer) error {
	if err := x.fit.WriteText(to); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "written to %s; a scenario takes it with pools[].modelServer.calibration: %s\n", x.file,
		x.file)
	return err
}

// Measured is the comparison of predicted with measured times.
type Measured struct {
	silicon.Comparison
	Rows []silicon.Compared `json:"rows"`
}

// CompareMeasured plays the load of each result of a file and compares the times. Without a file they are the results
// that windtunnel's parameters are fitted to, and without a calibration file these parameters predict.
func CompareMeasured(ctx context.Context, file, calibration string) (*Measured, error) {
	rows, err := silicon.Builtin()
	if file != "" {
		rows, err = ReadResults([]string{file}, silicon.Defaults{})
	}
	if err != nil {
		return nil, err
	}
	c := latency.BuiltinCalibration()
	if calibration != "" {
		text, err := files.Read(calibration, maxResultBytes)
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		f, err := latency.ParseCalibration(calibration, text)
		if err != nil {
			return nil, exit.With(exit.Input, err)
		}
		c = f.Parameters
	}
	servers, err := silicon.Servers(rows)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	all, err := silicon.Predict(ctx, servers, &c)
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	return &Measured{silicon.Compare(all), all}, nil
}
