package silicon

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Compared is a row with its predicted times in milliseconds.
type Compared struct {
	Row  `json:"measured"`
	TTFT float64 `json:"ttft"`
	TPOT float64 `json:"tpot"`
}

// Error is the distribution of predicted/measured - 1 over rows. Median and P90 are of absolute values, Bias is the
// signed median and Mean the signed mean. Worst is the value with the largest absolute one, of the row at Line.
type Error struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Worst  float64 `json:"worst"`
	Line   int     `json:"line"`
	Bias   float64 `json:"bias"`
	Mean   float64 `json:"mean"`
}

// Group has the errors of some rows. Tokens is the error of output tokens per second and GPU.
type Group struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	TPOT   Error  `json:"tpot"`
	TTFT   Error  `json:"ttft"`
	Tokens Error  `json:"tokensPerGPU"`
}

// Comparison has the errors of all rows and of groups of them.
type Comparison struct {
	All Group `json:"all"`
	// Configurations are by model, precision, accelerator and parallelism. Loads and Lengths are in steps of a factor
	// of two.
	Configurations []Group `json:"configurations"`
	Loads          []Group `json:"loads"`
	Lengths        []Group `json:"lengths"`
	// Pairs counts the pairs of rows of one model, lengths and load on different GPUs or parallelism whose measured
	// output tokens per second and GPU differ by more than 10 %, and Ranked those that the prediction ranks alike.
	Pairs  int `json:"pairs"`
	Ranked int `json:"ranked"`
}

// Configuration returns the model, precision, accelerator and parallelism in words.
func (r *Row) Configuration() string {
	_, model, found := strings.Cut(r.Model, "/")
	if !found {
		model = r.Model
	}
	text := fmt.Sprintf("%s %s, %s, TP %d", model, r.Precision, r.Accelerator, r.TensorParallel)
	if r.DataParallel > 1 {
		text += fmt.Sprintf(", DP %d", r.DataParallel)
	}
	if r.ExpertParallel > 1 {
		text += fmt.Sprintf(", EP %d", r.ExpertParallel)
	}
	return text
}

// Load returns the concurrency rounded down to a power of two, or 0 for a request rate.
func (r *Row) Load() int { return 1 << bits.Len(uint(r.Concurrency)) >> 1 }

// near returns the power of two that is nearest to a length.
func near(tokens int) int { return 1 << int(math.Round(math.Log2(float64(tokens)))) }

// Compare returns the errors of one row or more.
func Compare(rows []Compared) Comparison {
	c := Comparison{All: group("all", rows)}
	c.Configurations = groups(rows, func(r *Row) (string, int) { return r.Configuration(), 0 })
	c.Loads = groups(rows, func(r *Row) (string, int) {
		switch low := r.Load(); low {
		case 0:
			return "request rate", 0
		case 1:
			return "1 in flight", 1
		default:
			return fmt.Sprintf("%d to %d in flight", low, 2*low-1), low
		}
	})
	c.Lengths = groups(rows, func(r *Row) (string, int) {
		in, out := near(r.InputTokens), near(r.OutputTokens)
		return fmt.Sprintf("about %d + %d tokens", in, out), in<<5 + bits.Len(uint(out))
	})
	c.rank(rows)
	return c
}

// groups returns the errors of rows by name, in the order of a number and of the name.
func groups(rows []Compared, of func(*Row) (name string, place int)) (out []Group) {
	type key struct {
		place int
		name  string
	}
	by := map[key][]Compared{}
	for i := range rows {
		name, place := of(&rows[i].Row)
		by[key{place, name}] = append(by[key{place, name}], rows[i])
	}
	keys := make([]key, 0, len(by))
	for k := range by {
		keys = append(keys, k)
	}
	machine.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.name, b.name))
	})
	for _, k := range keys {
		out = append(out, group(k.name, by[k]))
	}
	return out
}

func group(name string, rows []Compared) Group {
	of := func(figures func(*Compared) (predicted, measured float64)) Error {
		return errorOf(rows, figures)
	}
	return Group{Name: name, Rows: len(rows),
		TPOT:   of(func(c *Compared) (float64, float64) { return c.TPOT, c.Row.TPOT.Value() }),
		TTFT:   of(func(c *Compared) (float64, float64) { return c.TTFT, c.Row.TTFT.Value() }),
		Tokens: of((*Compared).tokens)}
}

// tokens returns output tokens per second and GPU.
func (c *Compared) tokens() (predicted, measured float64) {
	return c.TokensPerGPU(c.TTFT, c.TPOT), c.TokensPerGPU(c.Row.TTFT.Value(), c.Row.TPOT.Value())
}

func errorOf(rows []Compared, figures func(*Compared) (predicted, measured float64)) (e Error) {
	var signed, absolute []float64
	for i := range rows {
		predicted, measured := figures(&rows[i])
		off := predicted/measured - 1
		if math.Abs(off) > math.Abs(e.Worst) || i == 0 {
			e.Worst, e.Line = off, rows[i].Line
		}
		e.Mean += off / float64(len(rows))
		signed, absolute = append(signed, off), append(absolute, math.Abs(off))
	}
	e.Bias, e.Median, e.P90 = quantile(signed, 0.5), quantile(absolute, 0.5), quantile(absolute, 0.9)
	for _, v := range []*float64{&e.Median, &e.P90, &e.Worst, &e.Bias, &e.Mean} {
		*v = math.Round(*v*1e6) / 1e6 // the last bits depend on the processor
	}
	return e
}

// quantile sorts values and returns a quantile, between its two neighbours; 0 without values.
func quantile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	place := p * float64(len(values)-1)
	i := min(int(place), len(values)-1)
	return values[i] + (place-float64(i))*(values[min(i+1, len(values)-1)]-values[i])
}

// rank counts pairs.
func (c *Comparison) rank(rows []Compared) {
	type key struct {
		model           string
		in, out, active int
		low, rate       float64
	}
	by := map[key][]*Compared{}
	for i := range rows {
		r := &rows[i]
		k := key{r.Model, r.InputTokens, r.OutputTokens, r.Concurrency, r.Low, r.RequestRate}
		by[k] = append(by[k], r)
	}
	for _, same := range by {
		for i, a := range same {
			for _, b := range same[:i] {
				if a.Accelerator == b.Accelerator && a.TensorParallel == b.TensorParallel &&
					a.DataParallel == b.DataParallel && a.ExpertParallel == b.ExpertParallel {
					continue
				}
				predictedA, measuredA := a.tokens()
				predictedB, measuredB := b.tokens()
				if measuredA < measuredB {
					predictedA, measuredA, predictedB, measuredB = predictedB, measuredB, predictedA, measuredA
				}
				if measuredA > 1.1*measuredB {
					c.Pairs++
					if predictedA > predictedB {
						c.Ranked++
					}
				}
			}
		}
	}
}
