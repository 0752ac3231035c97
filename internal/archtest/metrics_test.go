package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// metricTable is the package of the endpoint picker's metrics. Its string constants are prefixes of metric names.
const metricTable = "core/epp/metric"

// A driver declares no buckets of a histogram and no metric name that the core declares. The page in wall time and
// the values in virtual time come from one table; a second table would one day have other labels.
func TestDriversDeclareNoMetrics(t *testing.T) {
	var prefixes []string
	for _, f := range goFiles(t) {
		if f.dir == metricTable && !f.test {
			prefixes = append(prefixes, f.prefixes()...)
		}
	}
	if len(prefixes) < 5 {
		t.Fatalf("%s only has the prefixes %q; metricTable is out of date", metricTable, prefixes)
	}
	for _, f := range goFiles(t) {
		if !f.test && !ast.IsGenerated(f.ast) &&
			slices.ContainsFunc(Drivers, func(dir string) bool { return below(f.dir, dir) }) {
			f.metrics(prefixes, func(at, what string) {
				t.Errorf("%s: a driver declares %s: let %s have it", at, what, metricTable)
			})
		}
	}
}

// The rule finds violations and nothing else.
func TestMetricRuleBites(t *testing.T) {
	for code, want := range map[string]string{
		`_ = []float64{0.1, 0.5, 1, 2.5, 5}`:    "buckets of a histogram",
		`_ = []float64{0.1, 0.5, 0.9}`:          "",
		`_ = []float64{5, 1, 2, 8, 3}`:          "",
		`_ = "llm_d_epp_request_total"`:         `the metric "llm_d_epp_request_total"`,
		`_ = "llm_d_epp_request_total is told"`: "",
		`_ = "request_total"`:                   "",
	} {
		var got []string
		fragment(t, code).metrics([]string{"llm_d_epp_"}, func(_, what string) { got = append(got, what) })
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: found %q, expected %q", code, got, want)
		}
	}
}

// prefixes returns a file's string constants that end in _.
func (f *file) prefixes() (out []string) {
	for _, decl := range f.ast.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, _ := strconv.Unquote(lit.Value); strings.HasSuffix(text, "_") {
						out = append(out, text)
					}
				}
			}
		}
	}
	return out
}

// fewestBuckets is the length from which a list of growing numbers counts as a histogram's buckets.
const fewestBuckets = 5

func (f *file) metrics(prefixes []string, each func(at, what string)) {
	name := func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_:", r) }
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			return false
		case *ast.CompositeLit:
			if list, ok := n.Type.(*ast.ArrayType); ok && typeName(list.Elt) == "float64" && growing(n.Elts) {
				each(f.at(n), "buckets of a histogram")
			}
		case *ast.BasicLit:
			text, _ := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && !strings.ContainsFunc(text, name) &&
				slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) }) {
				each(f.at(n), "the metric "+n.Value)
			}
		}
		return true
	})
}

// growing reports whether a list has only numbers, each larger than the one before it.
func growing(list []ast.Expr) bool {
	last := 0.0
	for i, e := range list {
		lit, ok := e.(*ast.BasicLit)
		if !ok {
			return false
		}
		v, err := strconv.ParseFloat(lit.Value, 64)
		if err != nil || i > 0 && v <= last {
			return false
		}
		last = v
	}
	return len(list) >= fewestBuckets
}
