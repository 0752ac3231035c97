// Package measured returns the expected error of windtunnel's step times: the differences from public measurements of
// real GPUs, near a model, accelerator and load. data/errors.csv has them. Begin to read at Of.
package measured

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Left names the rows that a fit did not see.
type Left string

// The values of Left: none, all rows of the line's model, and all rows of the line's accelerator.
const (
	LeftNothing     Left = ""
	LeftModel       Left = "model"
	LeftAccelerator Left = "accelerator"
)

// Line has the errors of some measured configurations.
type Line struct {
	Left Left
	// Model and Accelerator are names of the catalogues, Precision is one of PrecisionOf's.
	Model, Precision, Accelerator string
	// GPUs and Batch are 1 where rows are left out.
	GPUs  int
	Batch int // requests in flight on each engine, rounded down to a power of four
	Rows  int
	// TTFT and TPOT are the medians of |predicted / measured - 1| over the rows.
	TTFT, TPOT float64
}

var header = []string{"left_out", "model", "precision", "accelerator", "gpus", "batch", "rows", "ttft", "tpot"}

// Limits of a file of lines.
const (
	maxBytes  = 1 << 20
	maxNumber = 1 << 20
	maxError  = 1000 // as a share
)

// Parse parses lines of left_out, model, precision, accelerator, gpus, batch, rows, ttft and tpot, after a header of
// these names. Lines that begin with # are comments. Errors name file and line.
func Parse(file, text string) (list []Line, err error) {
	err = latency.ReadCSV(file, text, maxBytes, header, func(record []string) error {
		l := Line{Left: Left(record[0]), Model: record[1], Precision: record[2], Accelerator: record[3]}
		err := l.parse(record)
		list = append(list, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (l *Line) parse(record []string) error {
	switch l.Left {
	case LeftNothing, LeftModel, LeftAccelerator:
	default:
		return fmt.Errorf("left_out: found %.40q; expected model, accelerator or nothing", l.Left)
	}
	if _, err := modelshape.Named(l.Model); err != nil {
		return err
	}
	if _, err := hardware.AcceleratorNamed(l.Accelerator); err != nil {
		return err
	}
	for i, to := range []*int{&l.GPUs, &l.Batch, &l.Rows} {
		n, err := strconv.Atoi(record[4+i])
		if err != nil || n < 1 || n > maxNumber {
			return fmt.Errorf("%s: found %.40q; expected a whole number from 1 to %d", header[4+i], record[4+i],
				maxNumber)
		}
		*to = n
	}
	for i, to := range []*float64{&l.TTFT, &l.TPOT} {
		v, err := strconv.ParseFloat(record[7+i], 64)
		if err != nil || !(v >= 0 && v <= maxError) {
			return fmt.Errorf("%s: found %.40q; expected a share from 0 to %d", header[7+i], record[7+i], maxError)
		}
		*to = v
	}
	return nil
}

// Format returns lines as Parse reads them.
func Format(list []Line) string {
	var b strings.Builder
	b.WriteString(strings.Join(header, ",") + "\n")
	for _, l := range list {
		fmt.Fprintf(&b, "%s,%s,%s,%s,%d,%d,%d,%.3f,%.3f\n", l.Left, l.Model, l.Precision, l.Accelerator, l.GPUs,
			l.Batch, l.Rows, l.TTFT, l.TPOT)
	}
	return b.String()
}

// PrecisionOf returns the name of a format of weights: bf16, fp8, fp4, int4, or the quantization's own.
func PrecisionOf(q *modelshape.Quantization) string {
	if q == nil {
		return "bf16"
	}
	switch q.Name {
	case "":
		return "bf16"
	case "mxfp4", "nvfp4":
		return "fp4"
	case "awq", "gptq":
		return "int4"
	}
	return q.Name
}

// Error is the expected error of times, as shares: half of the measured configurations are nearer.
type Error struct {
	// Rows is the number of measured configurations near the question. If it is 0, the errors are of models or
	// accelerators that a fit had not seen, and From is the nearest measured one.
	Rows int     `json:"rows"`
	From string  `json:"from,omitempty"`
	TTFT float64 `json:"ttft"`
	TPOT float64 `json:"tpot"`
}

// String returns the error in words.
func (e Error) String() string {
	if e.Rows > 0 {
		return fmt.Sprintf("TPOT ±%s on %d measured configurations; TTFT ±%s", percent(e.TPOT), e.Rows,
			percent(e.TTFT))
	}
	return fmt.Sprintf("no measurement within reach: from %s and physics alone, TPOT ±%s; TTFT ±%s", e.From,
		percent(e.TPOT), percent(e.TTFT))
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", max(1, 100*share)) }

// Of returns the expected error of the built-in step times at a number of requests in flight on each engine. ok is
// false if nothing is measured.
func Of(h *hardware.Hardware, batch int64) (e Error, ok bool) { return Expect(builtin(), h, batch) }

//go:embed data/errors.csv
var text string

var builtin = sync.OnceValue(func() []Line {
	list, err := Parse("errors.csv", text)
	if err != nil {
		panic(err) // embedded in this binary and parsed by a test
	}
	return list
})

// reach is the largest ratio of two batches that are near.
const reach = 4

// Expect is Of for other lines.
func Expect(list []Line, h *hardware.Hardware, batch int64) (e Error, ok bool) {
	precision := PrecisionOf(&h.Weights)
	var near pool
	for _, narrow := range []func(*Line) bool{
		func(l *Line) bool {
			return l.GPUs == h.Group.Ranks() && int64(l.Batch) <= reach*batch && batch <= reach*int64(l.Batch)
		},
		func(l *Line) bool { return l.GPUs == h.Group.Ranks() },
		func(*Line) bool { return true },
	} {
		for i := range list {
			if l := &list[i]; l.Left == LeftNothing && l.Model == h.Model.Name && l.Precision == precision &&
				l.Accelerator == h.Accelerator.Name && narrow(l) {
				near.add(l)
			}
		}
		if near.rows > 0 {
			e.TTFT, e.TPOT = near.mean()
			e.Rows = near.rows
			return e, true
		}
	}
	return unseen(list, h)
}

// pool averages errors by rows.
type pool struct {
	rows       int
	ttft, tpot float64
}

func (p *pool) add(l *Line) {
	p.rows += l.Rows
	p.ttft += float64(l.Rows) * l.TTFT
	p.tpot += float64(l.Rows) * l.TPOT
}

func (p *pool) mean() (ttft, tpot float64) {
	return p.ttft / float64(p.rows), p.tpot / float64(p.rows)
}

// unseen returns the error of configurations without a measurement: the mean error on models or accelerators that a fit
// had not seen, of the same kind (dense, or a mixture of experts). Where neither model nor accelerator is measured, the
// larger error counts.
func unseen(list []Line, h *hardware.Hardware) (e Error, ok bool) {
	var nearest *Line
	least := math.Inf(1)
	var pools [2]pool // by model, by accelerator
	knowsModel, knowsAccelerator := false, false
	for i := range list {
		l := &list[i]
		shape, err := modelshape.Named(l.Model)
		part, err2 := hardware.AcceleratorNamed(l.Accelerator)
		if err != nil || err2 != nil || (shape.Experts > 0) != (h.Model.Experts > 0) {
			continue
		}
		switch l.Left {
		case LeftModel:
			pools[0].add(l)
		case LeftAccelerator:
			pools[1].add(l)
		default:
			knowsModel = knowsModel || l.Model == h.Model.Name
			knowsAccelerator = knowsAccelerator || part.Name == h.Accelerator.Name
			off := distance(shape.Params(), h.Model.Params()) +
				distance(part.BandwidthBytes, h.Accelerator.BandwidthBytes)
			if off < least {
				least, nearest = off, l
			}
		}
	}
	if nearest == nil {
		return e, false
	}
	for i, counts := range []bool{!knowsModel, !knowsAccelerator || knowsModel} {
		if counts && pools[i].rows > 0 {
			ttft, tpot := pools[i].mean()
			e.TTFT, e.TPOT, ok = max(e.TTFT, ttft), max(e.TPOT, tpot), true
		}
	}
	_, model, _ := strings.Cut(nearest.Model, "/")
	e.From = model + " on " + nearest.Accelerator
	return e, ok
}

// distance returns the logarithm of the ratio of two numbers.
func distance(a, b int64) float64 { return math.Abs(math.Log(float64(a) / float64(b))) }
