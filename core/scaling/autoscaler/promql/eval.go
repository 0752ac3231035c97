package promql

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Result is the result of a query: a vector of series.
type Result []Sample

// Eval evaluates a query at now. Mistakes that depend on the data, such as two series in place of one, are errors.
func (s *Store) Eval(q *Query, now machine.Time) (Result, error) {
	e := evaluation{s: s, now: now}
	v := e.of(q.expr)
	if e.err != nil {
		return nil, fmt.Errorf("%s: %w", q.text, e.err)
	}
	if v.scalar {
		return Result{{Value: v.number}}, nil
	}
	return v.vector, nil
}

type evaluation struct {
	s   *Store
	now machine.Time
	err error // the first mistake; the values after it mean nothing
}

func (e *evaluation) fail(format string, args ...any) value {
	e.err = cmp.Or(e.err, fmt.Errorf(format, args...))
	return value{}
}

// value is a scalar or a vector.
type value struct {
	scalar bool
	number float64
	vector []Sample
}

func number(x float64) value { return value{scalar: true, number: x} }

func (e *evaluation) of(x parser.Expr) value {
	switch x := x.(type) {
	case *parser.ParenExpr:
		return e.of(x.Expr)
	case *parser.NumberLiteral:
		return number(x.Val)
	case *parser.UnaryExpr:
		v := e.of(x.Expr)
		if x.Op == parser.SUB {
			v = v.each(func(f float64) float64 { return -f })
		}
		return v
	case *parser.VectorSelector:
		return e.selected(x)
	case *parser.AggregateExpr:
		return e.aggregate(x)
	case *parser.BinaryExpr:
		return e.binary(x)
	case *parser.Call:
		return functions[x.Func.Name](e, x)
	}
	return e.fail("%T is not supported", x)
}

// each maps every number, and drops the metrics' names.
func (v value) each(f func(float64) float64) value {
	if v.scalar {
		return number(f(v.number))
	}
	out := value{vector: make([]Sample, len(v.vector))}
	for i, s := range v.vector {
		out.vector[i] = Sample{Labels: s.Labels, Value: f(s.Value)}
	}
	return out
}

func matches(x *series, v *parser.VectorSelector) bool {
	for _, m := range v.LabelMatchers {
		is := x.name
		if m.Name != metricName {
			is = get(x.labels, m.Name)
		}
		if !m.Matches(is) {
			return false
		}
	}
	return true
}

func get(list []metrics.Label, name string) string {
	for _, l := range list {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

func (e *evaluation) selected(v *parser.VectorSelector) (out value) {
	for _, x := range e.s.series {
		if matches(x, v) {
			if f, ok := x.at(e.now); ok {
				out.vector = append(out.vector, Sample{x.name, x.labels, f})
			}
		}
	}
	return out
}

// aggregations reduce the numbers of a group.
var aggregations = map[parser.ItemType]func(list []float64) float64{
	parser.SUM:   sum,
	parser.AVG:   func(l []float64) float64 { return sum(l) / float64(len(l)) },
	parser.MAX:   func(l []float64) float64 { return fold(l, math.Max) },
	parser.MIN:   func(l []float64) float64 { return fold(l, math.Min) },
	parser.COUNT: count,
}

func count(list []float64) float64 { return float64(len(list)) }

func sum(list []float64) (s float64) {
	for _, x := range list {
		s += x
	}
	return s
}

func fold(list []float64, f func(a, b float64) float64) float64 {
	x := list[0]
	for _, y := range list[1:] {
		x = f(x, y)
	}
	return x
}

func (e *evaluation) aggregate(x *parser.AggregateExpr) (out value) {
	var order []string
	groups, numbers := map[string][]metrics.Label{}, map[string][]float64{}
	for _, s := range e.of(x.Expr).vector {
		kept := slices.DeleteFunc(slices.Clone(s.Labels),
			func(l metrics.Label) bool { return slices.Contains(x.Grouping, l.Name) == x.Without })
		k := key("", kept)
		if numbers[k] == nil {
			order = append(order, k)
		}
		groups[k], numbers[k] = kept, append(numbers[k], s.Value)
	}
	for _, k := range order {
		out.vector = append(out.vector, Sample{Labels: groups[k], Value: aggregations[x.Op](numbers[k])})
	}
	return out
}

// operators return a number; comparisons return whether they hold.
var operators = map[parser.ItemType]func(a, b float64) float64{
	parser.ADD: func(a, b float64) float64 { return a + b }, parser.SUB: func(a, b float64) float64 { return a - b },
	parser.MUL: func(a, b float64) float64 { return a * b }, parser.DIV: func(a, b float64) float64 { return a / b },
	parser.MOD: math.Mod, parser.POW: math.Pow, parser.ATAN2: math.Atan2,
}

var comparisons = map[parser.ItemType]func(a, b float64) bool{
	parser.EQLC: func(a, b float64) bool { return a == b }, parser.NEQ: func(a, b float64) bool { return a != b },
	parser.GTR: func(a, b float64) bool { return a > b }, parser.LSS: func(a, b float64) bool { return a < b },
	parser.GTE: func(a, b float64) bool { return a >= b }, parser.LTE: func(a, b float64) bool { return a <= b },
}

func (e *evaluation) binary(x *parser.BinaryExpr) (out value) {
	a, b := e.of(x.LHS), e.of(x.RHS)
	if x.Op.IsSetOperator() {
		return set(x, a, b)
	}
	compares := comparisons[x.Op]
	// one evaluates a pair; false leaves it out, as a comparison does that does not hold.
	one := func(l, r, kept float64) (float64, bool) {
		switch {
		case compares == nil:
			return operators[x.Op](l, r), true
		case x.ReturnBool || a.scalar && b.scalar:
			if compares(l, r) {
				return 1, true
			}
			return 0, true
		}
		return kept, compares(l, r)
	}
	add := func(s Sample, f float64, ok bool) {
		if compares == nil || x.ReturnBool {
			s.Name = ""
		}
		if ok {
			out.vector = append(out.vector, Sample{s.Name, s.Labels, f})
		}
	}
	switch {
	case a.scalar && b.scalar:
		f, _ := one(a.number, b.number, 0)
		return number(f)
	case b.scalar:
		for _, s := range a.vector {
			f, ok := one(s.Value, b.number, s.Value)
			add(s, f, ok)
		}
		return out
	case a.scalar:
		for _, s := range b.vector {
			f, ok := one(a.number, s.Value, s.Value)
			add(s, f, ok)
		}
		return out
	}
	of := map[string]Sample{}
	for _, s := range b.vector {
		k, _ := matched(x.VectorMatching, s.Labels)
		if _, twice := of[k]; twice {
			return e.fail("the right side of %s has several series for %v", x.Op, s.Labels)
		}
		of[k] = s
	}
	seen := map[string]bool{}
	for _, s := range a.vector {
		k, kept := matched(x.VectorMatching, s.Labels)
		other, ok := of[k]
		if !ok {
			continue
		}
		if seen[k] {
			return e.fail("the left side of %s has several series for %v", x.Op, s.Labels)
		}
		seen[k] = true
		f, holds := one(s.Value, other.Value, s.Value)
		if s.Labels = kept; x.VectorMatching.On {
			s.Name = ""
		}
		add(s, f, holds)
	}
	return out
}

// matched returns the labels that match a series with another one.
func matched(m *parser.VectorMatching, list []metrics.Label) (string, []metrics.Label) {
	kept := slices.DeleteFunc(slices.Clone(list),
		func(l metrics.Label) bool { return slices.Contains(m.MatchingLabels, l.Name) != m.On })
	return key("", kept), kept
}

func set(x *parser.BinaryExpr, a, b value) (out value) {
	has := func(list []Sample) map[string]bool {
		of := map[string]bool{}
		for _, s := range list {
			k, _ := matched(x.VectorMatching, s.Labels)
			of[k] = true
		}
		return of
	}
	left, right := has(a.vector), has(b.vector)
	for _, s := range a.vector {
		k, _ := matched(x.VectorMatching, s.Labels)
		if x.Op == parser.LOR || x.Op == parser.LAND && right[k] || x.Op == parser.LUNLESS && !right[k] {
			out.vector = append(out.vector, s)
		}
	}
	if x.Op == parser.LOR {
		for _, s := range b.vector {
			if k, _ := matched(x.VectorMatching, s.Labels); !left[k] {
				out.vector = append(out.vector, s)
			}
		}
	}
	return out
}

// functions are the supported functions.
var functions map[string]func(e *evaluation, x *parser.Call) value

func init() {
	plain := func(f func(float64) float64) func(*evaluation, *parser.Call) value {
		return func(e *evaluation, x *parser.Call) value { return e.of(x.Args[0]).each(f) }
	}
	functions = map[string]func(e *evaluation, x *parser.Call) value{
		"abs": plain(math.Abs), "ceil": plain(math.Ceil), "floor": plain(math.Floor), "exp": plain(math.Exp),
		"sqrt": plain(math.Sqrt), "ln": plain(math.Log),
		"vector": func(e *evaluation, x *parser.Call) value {
			return value{vector: []Sample{{Value: e.of(x.Args[0]).number}}}
		},
		"scalar": func(e *evaluation, x *parser.Call) value {
			if v := e.of(x.Args[0]); len(v.vector) == 1 {
				return number(v.vector[0].Value)
			}
			return number(math.NaN())
		},
		"absent": func(e *evaluation, x *parser.Call) value {
			if len(e.of(x.Args[0]).vector) > 0 {
				return value{}
			}
			return value{vector: []Sample{{Value: 1}}}
		},
		"clamp_max": clamp(func(f float64, at []float64) float64 { return math.Min(f, at[0]) }),
		"clamp_min": clamp(func(f float64, at []float64) float64 { return math.Max(f, at[0]) }),
		"clamp":     clamp(func(f float64, at []float64) float64 { return math.Max(at[0], math.Min(f, at[1])) }),
		"round": func(e *evaluation, x *parser.Call) value {
			to := 1.0
			if len(x.Args) > 1 {
				to = e.of(x.Args[1]).number
			}
			return e.of(x.Args[0]).each(func(f float64) float64 { return math.Floor(f/to+0.5) * to })
		},
		"rate": over(func(list []point, now, span machine.Time) (float64, bool) {
			f, ok := extrapolated(list, now, span, true)
			return f / span.Seconds(), ok
		}),
		"increase": over(func(list []point, now, span machine.Time) (float64, bool) {
			return extrapolated(list, now, span, true)
		}),
		"delta": over(func(list []point, now, span machine.Time) (float64, bool) {
			return extrapolated(list, now, span, false)
		}),
		"avg_over_time":   overTime(func(l []float64) float64 { return sum(l) / float64(len(l)) }),
		"sum_over_time":   overTime(sum),
		"max_over_time":   overTime(func(l []float64) float64 { return fold(l, math.Max) }),
		"min_over_time":   overTime(func(l []float64) float64 { return fold(l, math.Min) }),
		"count_over_time": overTime(count),
		"last_over_time":  overTime(func(l []float64) float64 { return l[len(l)-1] }),
		"histogram_quantile": func(e *evaluation, x *parser.Call) value {
			return quantiles(e.of(x.Args[0]).number, e.of(x.Args[1]).vector)
		},
	}
}

func clamp(f func(f float64, at []float64) float64) func(*evaluation, *parser.Call) value {
	return func(e *evaluation, x *parser.Call) value {
		var at []float64
		for _, a := range x.Args[1:] {
			at = append(at, e.of(a).number)
		}
		return e.of(x.Args[0]).each(func(x float64) float64 { return f(x, at) })
	}
}

// over returns a function of the samples in a range, which are never empty.
func over(f func(list []point, now, span machine.Time) (float64, bool)) func(*evaluation, *parser.Call) value {
	return func(e *evaluation, x *parser.Call) value {
		m, ok := x.Args[0].(*parser.MatrixSelector)
		if !ok {
			return e.fail("%s is only supported of a selector with a range", x.Func.Name)
		}
		out, span := value{}, machine.FromDuration(m.Range)
		for _, s := range e.s.series {
			if !matches(s, m.VectorSelector.(*parser.VectorSelector)) {
				continue
			}
			if list := s.within(e.now, span); len(list) > 0 {
				if v, ok := f(list, e.now, span); ok {
					out.vector = append(out.vector, Sample{Labels: s.labels, Value: v})
				}
			}
		}
		return out
	}
}

func overTime(f func([]float64) float64) func(*evaluation, *parser.Call) value {
	return over(func(list []point, _, _ machine.Time) (float64, bool) {
		numbers := make([]float64, len(list))
		for i, p := range list {
			numbers[i] = p.value
		}
		return f(numbers), true
	})
}

// extrapolated returns the change of a series in a range, extrapolated to the range's ends as in Prometheus. A counter
// that restarts continues from its earlier value.
func extrapolated(list []point, now, span machine.Time, counter bool) (float64, bool) {
	if len(list) < 2 {
		return 0, false
	}
	first, last := list[0], list[len(list)-1]
	by := last.value - first.value
	if counter {
		for i := 1; i < len(list); i++ {
			if list[i].value < list[i-1].value {
				by += list[i-1].value
			}
		}
	}
	covered := (last.at - first.at).Seconds()
	if covered <= 0 {
		return 0, false
	}
	between := covered / float64(len(list)-1)
	before, after := (first.at - (now - span)).Seconds(), (now - last.at).Seconds()
	if before >= between*1.1 {
		before = between / 2
	}
	if counter && by > 0 && first.value >= 0 {
		before = math.Min(before, covered*(first.value/by)) // not below zero
	}
	if after >= between*1.1 {
		after = between / 2
	}
	return by * (covered + before + after) / covered, true
}

// quantiles returns the quantiles of classic histograms, by their other labels.
func quantiles(q float64, vector []Sample) (out value) {
	type bucket struct{ upTo, count float64 }
	var order []string
	of, kept := map[string][]bucket{}, map[string][]metrics.Label{}
	for _, s := range vector {
		le, err := strconv.ParseFloat(strings.TrimSpace(get(s.Labels, "le")), 64)
		if err != nil {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(s.Labels), func(l metrics.Label) bool { return l.Name == "le" })
		k := key("", rest)
		if of[k] == nil {
			order = append(order, k)
		}
		of[k], kept[k] = append(of[k], bucket{le, s.Value}), rest
	}
	for _, k := range order {
		b := of[k]
		sort.Slice(b, func(i, j int) bool { return b[i].upTo < b[j].upTo })
		result := math.NaN()
		if n := len(b); n > 1 && math.IsInf(b[n-1].upTo, 1) && b[n-1].count > 0 {
			for i := 1; i < n; i++ {
				b[i].count = math.Max(b[i].count, b[i-1].count)
			}
			rank := q * b[n-1].count
			i := sort.Search(n-1, func(i int) bool { return b[i].count >= rank })
			switch {
			case q < 0:
				result = math.Inf(-1)
			case q > 1:
				result = math.Inf(1)
			case i == n-1:
				result = b[n-2].upTo
			case i == 0 && b[0].upTo <= 0:
				result = b[0].upTo
			default:
				low, below := 0.0, 0.0
				if i > 0 {
					low, below = b[i-1].upTo, b[i-1].count
				}
				if result = b[i].upTo; b[i].count > below {
					result = low + (b[i].upTo-low)*(rank-below)/(b[i].count-below)
				}
			}
		}
		out.vector = append(out.vector, Sample{Labels: kept[k], Value: result})
	}
	return out
}
