package search

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/table"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// verdicts are the verdicts by their words.
var verdicts = map[string]Verdict{"keeps": Keeps, "misses": Misses, "undecided": Undecided}

// loadColumns are the columns of rows.
var loadColumns = slices.Concat([]table.Column{{Name: "rate", Kind: table.Decimal, Digits: table.Exact},
	{Name: "servers"}, {Name: "verdict"}, {Name: "misses"}, {Name: "pilot"}, {Name: "runs", Kind: table.Whole},
	{Name: "requests_each", Kind: table.Whole}}, measureColumns)

// rows writes a row for each measure of each load.
func (x *Capacity) rows(to table.Writer) {
	for i := range x.Loads {
		l := &x.Loads[i]
		of := []table.Value{table.Number(l.Rate), table.Of(l.Servers), table.Of(l.Verdict), table.Of(l.Why),
			table.Of(strconv.FormatBool(l.Pilot)), table.Number(float64(l.Runs)), table.Number(float64(l.Requests))}
		for k := range l.Measures {
			to.Write(slices.Concat(of, measureCells(&l.Measures[k])))
		}
	}
}

// doubt sets StepTimes. It takes rates and servers as proportional to the step times.
func (x *Capacity) doubt(e *report.StepError) {
	x.StepTimes = e.Text
	more := 1 + e.Most()
	switch {
	case x.Replicas > 0 && x.Find == FindReplicas:
		least, most := math.Ceil(float64(x.Replicas)/more), math.Ceil(float64(x.Replicas)*more)
		x.StepTimes += fmt.Sprintf("; times that far off make it about %.0f to %.0f replicas", max(1, least), most)
	case x.Keeps > 0:
		x.StepTimes += fmt.Sprintf("; times that far off make it about %v to %v requests/s",
			Significant(x.Keeps/more, 4), Significant(x.Keeps*more, 4))
	}
}

// Write prints the result for people, on lines of so many columns; 0 columns never break.
func (x *Capacity) Write(to io.Writer, columns int) error {
	if err := terminal.WriteWrapped(to, strings.Join(x.verdict(), "\n"), 9, columns); err != nil {
		return err
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nrequests/s\tservers\truns\t")
	for _, b := range x.objectives {
		fmt.Fprintf(w, "%s\t", b.measure.Name)
	}
	fmt.Fprintln(w, "  verdict")
	loads := slices.Clone(x.Loads)
	machine.SortStableFunc(loads, func(a, b load) int {
		if a.Servers != b.Servers {
			return 0
		}
		return int(math.Copysign(1, a.Rate-b.Rate))
	})
	for _, l := range loads {
		fmt.Fprintf(w, "%v\t%s\t%d x %d\t", l.Rate, l.Servers, l.Runs, l.Requests)
		for i := range x.objectives {
			fmt.Fprintf(w, "%s\t", l.Measures[i].Interval())
		}
		fmt.Fprintf(w, "  %s\n", l.words())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return terminal.WriteWrapped(to, table.String(), 4, columns)
}

// at returns the load in words.
func (l *load) at() string {
	noun := "servers"
	if l.Servers == "1" {
		noun = "server"
	}
	return fmt.Sprintf("%v requests/s with %s %s", l.Rate, l.Servers, noun)
}

// words returns the verdict and its reason.
func (l *load) words() string {
	switch {
	case l.Pilot && l.look.Verdict != Misses:
		return "pilot"
	case l.Pilot:
		return "pilot, misses: " + l.Why
	case l.Why != "":
		return l.Verdict + ": " + l.Why
	}
	return l.Verdict
}

// verdict returns the answer, and what holds the run back if something does, as lines.
func (x *Capacity) verdict() []string {
	answer := "answer   " + x.Answer
	if x.Binds != "" {
		answer += "; the first to be missed is " + x.Binds
	}
	lines := []string{answer}
	if x.Full {
		held := "held by  " + x.Constraint
		if n := len(x.Uses) - 1; n > 0 {
			held += " (" + terminal.Join(n, func(i int) string { return x.Uses[1+i].String() }) + ")"
		}
		lines = append(lines, held)
	}
	if x.StepTimes != "" {
		lines = append(lines, "steps    "+x.StepTimes)
	}
	return append(lines, "played   "+terminal.Counted(x.Requests, "request")+" in "+terminal.Counted(x.Runs, "run"))
}
