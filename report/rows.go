package report

import (
	"encoding/csv"
	"io"
	"strconv"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
)

// rows writes a line of comma-separated values for each request that ends, as it ends.
type rows struct {
	out   *csv.Writer
	spans []int // that are columns, by their places among Spans
	cells []string
	err   error
}

// RowColumns are the columns of the table of requests, in their order. Times are
// seconds; what a request did not come to is empty.
func RowColumns() []string {
	columns := []string{"request", "number", "class", "outcome", "status", "reason", "refusal", "endpoint", "prefill_endpoint", "sent_s", "ttft_s", "tpot_s", "e2e_s"}
	for _, s := range Spans() {
		if !s.Completed {
			columns = append(columns, s.Name+"_s")
		}
	}
	return append(columns, "prompt_tokens", "cached_tokens", "output_tokens")
}

func newRows(w io.Writer) *rows {
	x := &rows{out: csv.NewWriter(w)}
	for i, s := range Spans() {
		if !s.Completed {
			x.spans = append(x.spans, i)
		}
	}
	x.err = x.out.Write(RowColumns())
	return x
}

// fate is how a request ended.
type fate struct {
	outcome flow.Outcome
	status  int    // of HTTP, at its client; 0 where no answer came
	reason  string // why it did not complete, as its client was told or said itself
	refusal string // the last that it met, as the summary counts it
}

// row is what a request came to; took says how long a span was, false where it was not
// measured.
func (x *rows) row(id, class string, f fate, endpoint, prefiller string, e *Ended, took func(span int) (machine.Time, bool)) {
	if x.err != nil {
		return
	}
	seconds := func(micros uint32) string { return strconv.FormatFloat(float64(micros)/1e6, 'f', 6, 64) }
	ttft, tpot := "", ""
	if e.TTFT > 0 {
		ttft = seconds(e.TTFT)
		if v, ok := e.TPOT(); ok {
			tpot = strconv.FormatFloat(v, 'f', 9, 64)
		}
	}
	status := ""
	if f.status > 0 {
		status = strconv.Itoa(f.status)
	}
	x.cells = append(x.cells[:0], name(id), strconv.Itoa(int(e.Number)), name(class), name(string(f.outcome)), status, name(f.reason), name(f.refusal), name(endpoint), name(prefiller),
		strconv.FormatFloat(e.Sent.Seconds(), 'f', 6, 64), ttft, tpot, seconds(e.E2E))
	for _, i := range x.spans {
		cell := ""
		if d, ok := took(i); ok {
			cell = seconds(micros(d))
		}
		x.cells = append(x.cells, cell)
	}
	x.cells = append(x.cells, strconv.Itoa(int(e.Prompt)), strconv.Itoa(int(e.Cached)), strconv.Itoa(int(e.Tokens)))
	x.err = x.out.Write(x.cells)
}

// rowOf is the line of a request that has its outcome.
func (t *Tally) rowOf(r *openRequest, id string, f fate, e Ended) {
	t.rows.row(id, r.class, f, r.server, r.prefiller, &e, func(span int) (machine.Time, bool) {
		for _, s := range r.spans {
			if int(s.span) == span {
				return s.at, true
			}
		}
		return 0, false
	})
}

// rowOfLife is that of a request that is told as a whole.
func (t *Tally) rowOfLife(l *flow.Life, e Ended) {
	at := times(l)
	t.rows.row(l.Request, l.Class, fate{outcome: l.Outcome(), status: l.Status()}, l.Endpoint, "", &e, func(span int) (machine.Time, bool) {
		for _, s := range t.index.lives {
			if s.span == span {
				return at[s.to] - at[s.from], true
			}
		}
		return 0, false
	})
}

// end writes out what is left, and tells the first failure.
func (x *rows) end() error {
	x.out.Flush()
	if x.err != nil {
		return x.err
	}
	return x.out.Error()
}
