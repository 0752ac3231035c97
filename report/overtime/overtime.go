// Package overtime shows when a run's servers were too few: a Run has the requests that were sent, ended, were good and
// were refused, and the servers that were ready, in stretches of equal length. It becomes lines of blocks, or CSV.
package overtime

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/report/terminal"
)

// Run is a run in stretches.
type Run struct {
	Width     float64   `json:"widthSeconds"`
	Stretches []Stretch `json:"stretches"`
}

// Stretch is a part of a run.
type Stretch struct {
	From float64 `json:"from"` // in seconds since the run began
	Sent int     `json:"sent"`
	// Ended counts the requests that ended in it, Good those within their SLO, or completed where they have none, and
	// Refused those that were refused.
	Ended   int `json:"ended"`
	Good    int `json:"good"`
	Refused int `json:"refused"`
	// Ready is how many servers were ready at its end. It is 0 where servers neither come nor go.
	Ready int `json:"ready,omitempty"`
}

// attainment returns the share of good requests, NaN where none ended.
func (x *Stretch) attainment() float64 {
	if x.Ended == 0 {
		return math.NaN()
	}
	return float64(x.Good) / float64(x.Ended)
}

// parts is in how many parts Changes looks, and enough how many requests each needs.
const parts, enough = 5, 20

// Changes reports whether the share of good requests changes by a tenth between fifths of the run.
func (o *Run) Changes() bool {
	fifths, _ := o.joined(parts)
	least, most := 1.0, 0.0
	for i := range fifths {
		if fifths[i].Ended >= enough {
			v := fifths[i].attainment()
			least, most = min(least, v), max(most, v)
		}
	}
	return most-least >= 0.1
}

// joined returns the run in at most n stretches, and their length in seconds.
func (o *Run) joined(n int) (list []Stretch, seconds float64) {
	each := max(1, (len(o.Stretches)+n-1)/n)
	for i, x := range o.Stretches {
		if i%each == 0 {
			list = append(list, x)
			continue
		}
		p := &list[len(list)-1]
		p.Sent, p.Ended, p.Good, p.Refused, p.Ready = p.Sent+x.Sent, p.Ended+x.Ended, p.Good+x.Good,
			p.Refused+x.Refused, x.Ready
	}
	return list, o.Width * float64(each)
}

// columns bounds a line of blocks.
const columns = 40

// Lines returns a line of blocks with its words for each quantity that is not 0.
func (o *Run) Lines() (out []string) {
	if o == nil || len(o.Stretches) == 0 {
		return nil
	}
	list, seconds := o.joined(columns)
	end := terminal.Span(o.Stretches[len(o.Stretches)-1].From + o.Width)
	for _, q := range []struct {
		of   func(x *Stretch) float64
		text func(least, most float64) string
	}{
		{func(x *Stretch) float64 { return float64(x.Sent) / seconds },
			func(_, most float64) string { return fmt.Sprintf("sent, to %.3g/s; until %s", most, end) }},
		{(*Stretch).attainment, func(least, most float64) string {
			if least == most {
				return fmt.Sprintf("good, %.3g%%", 100*most)
			}
			return fmt.Sprintf("good, %.3g%% to %.3g%%", 100*least, 100*most)
		}},
		{func(x *Stretch) float64 { return float64(x.Refused) / seconds },
			func(_, most float64) string { return fmt.Sprintf("refused, to %.3g/s", most) }},
		{func(x *Stretch) float64 { return float64(x.Ready) },
			func(least, most float64) string { return fmt.Sprintf("servers ready, %.0f to %.0f", least, most) }},
	} {
		least, most := math.Inf(1), 0.0
		values := make([]float64, len(list))
		for i := range list {
			if values[i] = q.of(&list[i]); !math.IsNaN(values[i]) {
				least, most = min(least, values[i]), max(most, values[i])
			}
		}
		if most > 0 {
			out = append(out, blocks(values, most)+"  "+q.text(least, most))
		}
	}
	return out
}

// blocks returns values as blocks of eight heights. NaN and 0 are spaces.
func blocks(values []float64, most float64) string {
	var b strings.Builder
	for _, v := range values {
		height := 0
		if v > 0 { // not NaN
			height = min(8, int(math.Ceil(8*v/most)))
		}
		b.WriteRune([]rune(" ▁▂▃▄▅▆▇█")[height])
	}
	return b.String()
}

// WriteCSV writes a line for each stretch.
func (o *Run) WriteCSV(to io.Writer) error {
	lines := [][]string{{"from_seconds", "sent", "ended", "good", "attainment", "refused", "servers_ready"}}
	for i := range o.Stretches {
		x := &o.Stretches[i]
		share := ""
		if x.Ended > 0 {
			share = strconv.FormatFloat(x.attainment(), 'f', 4, 64)
		}
		lines = append(lines, []string{strconv.FormatFloat(x.From, 'f', -1, 64), strconv.Itoa(x.Sent),
			strconv.Itoa(x.Ended), strconv.Itoa(x.Good), share, strconv.Itoa(x.Refused), strconv.Itoa(x.Ready)})
	}
	return csv.NewWriter(to).WriteAll(lines)
}
