package promql

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/windtunnel/windtunnel/core/machine"
)

// metricName is the label with a metric's name in Prometheus.
const metricName = "__name__"

// maxQuery bounds the length of a query, in bytes.
const maxQuery = 16 << 10

// Query is a parsed query.
type Query struct {
	text string
	expr parser.Expr
}

// ClusterLabels are labels of a cluster's scrape configuration. A scenario has no cluster, so Read drops equalities
// with them.
var ClusterLabels = []string{"namespace", "exported_namespace", "service", "job", "instance", "container", "endpoint",
	"cluster", "deployment", "prometheus", "node", "app"}

// Read parses a query. dropped are the matchers that it ignores: of ClusterLabels, and with a placeholder as value.
func Read(text string) (q *Query, dropped []string, err error) {
	if len(text) > maxQuery {
		return nil, nil, fmt.Errorf("the query has %d bytes; expected up to %d", len(text), maxQuery)
	}
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return nil, nil, fmt.Errorf("not PromQL: %w", err)
	}
	q = &Query{strings.Join(strings.Fields(text), " "), expr}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if bad := refused(n); bad != "" && err == nil {
			err = fmt.Errorf("%s is not supported; expected sums and other aggregations, arithmetic, "+
				"comparisons, and, or, unless, and the functions %s", bad, strings.Join(known(), ", "))
		}
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		v.LabelMatchers = slices.DeleteFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
			of := m.Type == labels.MatchEqual && slices.Contains(ClusterLabels, m.Name) ||
				strings.Contains(m.Value, "${")
			if of {
				dropped = append(dropped, m.String())
			}
			return of
		})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return q, dropped, nil
}

// Sum returns the query for the sum of a metric's series with these labels.
func Sum(name string, matchLabels map[string]string) (*Query, []string, error) {
	return Read("sum(" + selector(name, matchLabels) + ")")
}

// Each returns the query for the sums of a metric's series with these labels, by pod.
func Each(name string, matchLabels map[string]string) (*Query, []string, error) {
	return Read("sum by (pod) (" + selector(name, matchLabels) + ")")
}

func selector(name string, matchLabels map[string]string) string {
	var pairs []string
	for k, v := range matchLabels {
		pairs = append(pairs, fmt.Sprintf("%s=%q", k, v))
	}
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, ",") + "}"
}

// String returns the query's text on one line.
func (q *Query) String() string { return q.text }

// Names returns the metrics that the query reads.
func (q *Query) Names() (out []string) {
	parser.Inspect(q.expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			name := v.Name
			for _, m := range v.LabelMatchers {
				if m.Name == metricName && m.Type == labels.MatchEqual {
					name = m.Value
				}
			}
			out = append(out, name)
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// Range returns the longest range in the query.
func (q *Query) Range() (longest machine.Time) {
	parser.Inspect(q.expr, func(n parser.Node, _ []parser.Node) error {
		if m, ok := n.(*parser.MatrixSelector); ok {
			longest = max(longest, machine.FromDuration(m.Range))
		}
		return nil
	})
	return longest
}

// refused names the part of a query that this package does not evaluate.
func refused(n parser.Node) string {
	switch x := n.(type) {
	case *parser.SubqueryExpr:
		return "a subquery"
	case *parser.StepInvariantExpr, *parser.StringLiteral:
		return "this"
	case *parser.VectorSelector:
		if x.OriginalOffset != 0 || x.OriginalOffsetExpr != nil || x.Timestamp != nil || x.StartOrEnd != 0 ||
			x.Anchored || x.Smoothed {
			return "offset, @, anchored or smoothed"
		}
		if x.Name == "" && !slices.ContainsFunc(x.LabelMatchers,
			func(m *labels.Matcher) bool { return m.Name == metricName && m.Type == labels.MatchEqual }) {
			return "a selector without a metric's name"
		}
	case *parser.MatrixSelector:
		if x.RangeExpr != nil {
			return "a range that is worked out"
		}
	case *parser.AggregateExpr:
		if aggregations[x.Op] == nil {
			return x.Op.String()
		}
	case *parser.Call:
		if functions[x.Func.Name] == nil {
			return x.Func.Name + "()"
		}
	case *parser.BinaryExpr:
		if m := x.VectorMatching; m != nil && (m.Card == parser.CardManyToOne || m.Card == parser.CardOneToMany) {
			return "group_left or group_right"
		}
	}
	return ""
}

// known returns the names of the functions, sorted.
func known() []string { return slices.Sorted(maps.Keys(functions)) }
