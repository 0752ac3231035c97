package silicon

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/measured"
)

// compared returns a row of 100 + 11 tokens whose prediction differs from the measurement by factors.
func compared(accelerator string, tp, concurrency int, ttft, tpot, ttftFactor, tpotFactor float64) Compared {
	return Compared{Row: Row{Line: tp, Model: "meta-llama/Llama-3.1-8B", Accelerator: accelerator, Precision: "fp8",
		TensorParallel: tp, DataParallel: 1, ExpertParallel: 1, InputTokens: 100, OutputTokens: 11, Low: 1,
		Concurrency: concurrency, TTFT: Time{Mean: ttft}, TPOT: Time{Median: tpot}},
		TTFT: ttft * ttftFactor, TPOT: tpot * tpotFactor}
}

func TestCompare(t *testing.T) {
	rows := []Compared{
		compared("H100", 1, 4, 100, 10, 1, 1.1),  // 11 × 4000 / 200 ms = 220 tokens/s/GPU
		compared("H100", 2, 4, 80, 6, 0.8, 0.9),  // 11 × 4000 / 140 ms / 2 = 157
		compared("H200", 4, 5, 100, 10, 1, 0.75), // another load: no pair
		compared("H200", 1, 4, 100, 9, 1, 1.5),   // 11 × 4000 / 190 ms = 232 is 5 % above 220
	}
	c := Compare(rows)
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, expected %v", what, got, want)
		}
	}
	if c.All.Rows != 4 || c.All.TPOT.Line != 1 {
		t.Errorf("%+v", c.All)
	}
	near("median", c.All.TPOT.Median, (0.1+0.25)/2)
	near("p90", c.All.TPOT.P90, 0.25+0.7*0.25)
	near("worst", c.All.TPOT.Worst, 0.5)
	near("bias", c.All.TPOT.Bias, 0)
	near("mean", c.All.TPOT.Mean, 0.25/4)
	near("TTFT's worst", c.All.TTFT.Worst, -0.2)
	near("tokens of the first", groups(rows[:1], func(*Row) (string, int) { return "", 0 })[0].Tokens.Worst, 200./210-1)
	names := func(list []Group) (out []string) {
		for _, g := range list {
			out = append(out, fmt.Sprint(g.Name, " ", g.Rows))
		}
		return out
	}
	configurations := []string{"Llama-3.1-8B fp8, H100, TP 1 1", "Llama-3.1-8B fp8, H100, TP 2 1",
		"Llama-3.1-8B fp8, H200, TP 1 1", "Llama-3.1-8B fp8, H200, TP 4 1"}
	if got := names(c.Configurations); !reflect.DeepEqual(got, configurations) {
		t.Error(got)
	}
	if got, want := names(c.Loads), []string{"4 to 7 in flight 4"}; !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
	if got, want := names(c.Lengths), []string{"about 128 + 8 tokens 4"}; !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
	// The pairs that differ enough are 220 and 157, and 232 and 157. The prediction, 210, 186 and 187, ranks both.
	if c.Pairs != 2 || c.Ranked != 2 {
		t.Errorf("%d of %d pairs ranked, expected 2 of 2", c.Ranked, c.Pairs)
	}
	rows[0].TPOT *= 2
	if c = Compare(rows); c.Pairs != 2 || c.Ranked != 1 {
		t.Errorf("%d of %d pairs ranked, expected 1 of 2", c.Ranked, c.Pairs)
	}
	// The order of rows does not matter.
	rows[0], rows[3] = rows[3], rows[0]
	if again := Compare(rows); !reflect.DeepEqual(again, c) {
		t.Errorf("%+v\n%+v", again, c)
	}
}

func TestWrite(t *testing.T) {
	rows := []Compared{compared("H100", 1, 4, 100, 10, 1, 1.1), compared("H200", 2, 1, 80, 6, 0.8, 0.9996)}
	c := Compare(rows)
	var text, page bytes.Buffer
	if err := errors.Join(c.WriteText(&text), c.WriteMarkdown(&page)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Llama-3.1-8B fp8, H100, TP 1       1       10.0 %  10.0 %   +10 %   +10 %",
		"no two rows can be ranked"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	for _, want := range []string{"| configuration | rows | TPOT median |", "|---|--:|",
		"| Llama-3.1-8B fp8, H200, TP 2 | 1 | 0.0 % | 0.0 % | +0 % | +0 % | 20.0 % | 20.0 % | -20 % | -20 % | 12.9 % |",
		"| 1 in flight | 1 |"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
}

// The plot is XML without scripts, and has a dot for each row and time.
func TestWriteSVG(t *testing.T) {
	for _, n := range []int{0, 1, 467} {
		var rows []Compared
		for i := range n {
			r := compared([]string{"H100", "H200", "B<200"}[i%3], 1, 4, 50*math.Exp(float64(i%40)/8), 5+float64(i%50),
				0.7+float64(i%7)/10, 0.8+float64(i%5)/10)
			rows = append(rows, r)
		}
		var b bytes.Buffer
		if err := WriteSVG(&b, rows); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if dots := strings.Count(text, "h0"); dots != 2*n || b.Len() > 60_000 || strings.Contains(text, "NaN") ||
			strings.Contains(text, "Inf") {
			t.Errorf("%d rows: %d dots, %d bytes", n, dots, b.Len())
		}
		d := xml.NewDecoder(&b)
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "script" {
				t.Error("the plot has a script")
			}
		}
	}
}

// The table of errors has a line for each configuration and load, and can be read again.
func TestErrorTable(t *testing.T) {
	rate := compared("H100", 1, 0, 100, 10, 1.3, 1.25)
	rate.RequestRate = 30 // × 200 ms are 6 in flight
	all := []Compared{compared("H100", 1, 4, 100, 10, 1, 1.1), compared("H100", 1, 7, 100, 10, 1, 0.7), rate,
		compared("H200", 2, 9, 100, 10, 1.5, 1)}
	all[3].TensorParallel, all[3].DataParallel = 1, 2
	got := errorTable(all, all[3:], all[:1])
	want := `left_out,model,precision,accelerator,gpus,batch,rows,ttft,tpot
,meta-llama/Llama-3.1-8B,fp8,H100,1,4,3,0.000,0.250
,meta-llama/Llama-3.1-8B,fp8,H200,2,4,1,0.500,0.000
model,meta-llama/Llama-3.1-8B,fp8,H200,1,1,1,0.500,0.000
accelerator,meta-llama/Llama-3.1-8B,fp8,H100,1,1,1,0.000,0.100
`
	if got != want {
		t.Errorf("found\n%s", got)
	}
	if list, err := measured.Parse("", got); err != nil || len(list) != 4 {
		t.Error(list, err)
	}
}
