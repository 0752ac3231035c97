package report

import (
	"io"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/table"
)

// rows writes a row of a table for each request as it ends.
type rows struct {
	table.Writer
	spans []int // indexes in Spans of those that are columns
	row   []table.Value
}

// RowColumns returns the columns of the table of requests, in order. Times are seconds. A cell is empty where the
// request has no value.
func RowColumns() []table.Column {
	seconds := func(name string) table.Column { return table.Column{Name: name, Kind: table.Decimal, Digits: 6} }
	columns := []table.Column{{Name: "request"}, {Name: "number", Kind: table.Whole}, {Name: "class"},
		{Name: "outcome"}, {Name: "status", Kind: table.Whole}, {Name: "reason"}, {Name: "refusal"},
		{Name: "endpoint"}, {Name: "prefill_endpoint"}, seconds("sent_s"), seconds("ttft_s"),
		{Name: "tpot_s", Kind: table.Decimal, Digits: 9}, seconds("e2e_s")}
	for _, s := range Spans() {
		if !s.Completed {
			columns = append(columns, seconds(s.Name+"_s"))
		}
	}
	return append(columns, table.Column{Name: "prompt_tokens", Kind: table.Whole},
		table.Column{Name: "cached_tokens", Kind: table.Whole}, table.Column{Name: "output_tokens", Kind: table.Whole})
}

func newRows(w io.Writer, begin func(io.Writer, []table.Column) table.Writer) *rows {
	x := &rows{Writer: begin(w, RowColumns())}
	for i, s := range Spans() {
		if !s.Completed {
			x.spans = append(x.spans, i)
		}
	}
	return x
}

// ending is how a request ended.
type ending struct {
	outcome record.Outcome
	status  int    // of HTTP, at the client; 0 without an answer
	reason  string // why it did not complete, from its client
	refusal string // the last refusal, as the summary counts it
}

// add writes the row of a request. took returns the length of a span, false where it was not measured.
func (x *rows) add(id, class string, f ending, endpoint, prefiller string, e *Ended,
	took func(span int) (machine.Time, bool)) {
	seconds := func(d machine.Time) table.Value { return table.Number(d.Seconds()) }
	var status, ttft, tpot table.Value
	if e.TTFT > 0 {
		ttft = seconds(e.TTFT)
		if v, ok := e.TPOT(); ok {
			tpot = table.Number(v)
		}
	}
	if f.status > 0 {
		status = table.Number(float64(f.status))
	}
	x.row = append(x.row[:0], table.Of(name(id)), table.Number(float64(e.Number)), table.Of(name(class)),
		table.Of(name(string(f.outcome))), status, table.Of(name(f.reason)), table.Of(name(f.refusal)),
		table.Of(name(endpoint)), table.Of(name(prefiller)), table.Number(e.Sent.Seconds()), ttft, tpot, seconds(e.E2E))
	for _, i := range x.spans {
		var cell table.Value
		if d, ok := took(i); ok {
			cell = seconds(d)
		}
		x.row = append(x.row, cell)
	}
	x.Write(append(x.row, table.Number(float64(e.Prompt)), table.Number(float64(e.Cached)),
		table.Number(float64(e.Tokens))))
}

// addRow writes the row of a request that has its outcome.
func (t *Tally) addRow(r *openRequest, id string, f ending, e Ended) {
	t.rows.add(id, r.class, f, r.server, r.prefiller, &e, func(span int) (machine.Time, bool) {
		for _, s := range r.spans {
			if int(s.span) == span {
				return s.at, true
			}
		}
		return 0, false
	})
}

// addLifeRow writes the row of a request that was recorded as a life.
func (t *Tally) addLifeRow(l *record.Life, e Ended) {
	at := times(l)
	t.rows.add(l.Request, l.Class, ending{outcome: l.Outcome(), status: l.Status()}, l.Endpoint, "", &e,
		func(span int) (machine.Time, bool) {
			for _, s := range t.index.lives {
				if s.span == span {
					return at[s.to] - at[s.from], true
				}
			}
			return 0, false
		})
}
