package silicon

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/measured"
)

// errorTable returns the text of core/modelserver/latency/measured/data/errors.csv: of predictions by a fit to all
// rows, and of predictions for each row by a fit without all rows of its model, or of its accelerator.
func errorTable(all, leftModel, leftAccelerator []Compared) string {
	list := linesOf(measured.LeftNothing, all)
	list = append(list, linesOf(measured.LeftModel, leftModel)...)
	return measured.Format(append(list, linesOf(measured.LeftAccelerator, leftAccelerator)...))
}

func linesOf(left measured.Left, rows []Compared) (list []measured.Line) {
	by := map[measured.Line][]Compared{}
	for _, c := range rows {
		l := measured.Line{Left: left, Model: c.Model, Precision: c.Precision, Accelerator: c.Accelerator,
			GPUs: 1, Batch: 1}
		if left == measured.LeftNothing { // errors at what the fit has not seen count for all groups and loads
			l.GPUs, l.Batch = c.GPUs(), c.batch()
		}
		by[l] = append(by[l], c)
	}
	for l, rows := range by {
		g := group("", rows)
		l.Rows, l.TTFT, l.TPOT = g.Rows, g.TTFT.Median, g.TPOT.Median
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b measured.Line) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Precision, b.Precision),
			cmp.Compare(a.Accelerator, b.Accelerator), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Batch, b.Batch))
	})
	return list
}

// batch returns the requests in flight on each engine, rounded down to a power of four. At a request rate, these follow
// from the measured times.
func (c *Compared) batch() int {
	all := float64(c.Concurrency)
	if c.RequestRate > 0 {
		all = c.RequestRate * (c.Row.TTFT.Value() + float64(c.OutputTokens-1)*c.Row.TPOT.Value()) / 1000
	}
	return 1 << ((bits.Len(max(1, uint(all/float64(c.DataParallel)))) - 1) &^ 1)
}
