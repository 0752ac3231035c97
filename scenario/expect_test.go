package scenario

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/strictyaml"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

func TestExpectations(t *testing.T) {
	s, err := Parse("x.yaml", []byte(`{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}], expectations: {
		outcomes: {completed: 95%..100%, refused: 0, unavailable: 1..2, left: 100%},
		spans: {ttft: {p50: 1s, p99: 2s}, hold: {max: 1m}},
		measures: ["ttft p99 <= 200ms", "goodput>=40", "utilisation decode <= 85%", "itl p50 <= 1ms"],
		figures: ["classes[chat].attainment >= 0.95", "refusals[epp: queue full] <= 3", "transfers.requests >= 1"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Expectations.Check(
		Measured{Requests: 40, Outcomes: map[flow.Outcome]int{flow.Completed: 37, flow.Unavailable: 2, flow.Broken: 1},
			Span: func(span, quantile string) (time.Duration, bool) { return 1500 * time.Millisecond, span == "ttft" },
			Measure: func(name string) (float64, bool) {
				v, ok := map[string]float64{"ttft p99": 0.25, "goodput": 40, "utilisation decode": 0.9}[name]
				return v, ok
			},
			Figure: func(path []string) (float64, bool) {
				v, ok := map[string]float64{"classes chat attainment": 0.9,
					"refusals epp: queue full": 3}[strings.Join(path, " ")]
				return v, ok
			}})
	want := []Expectation{
		{"completed", "95%..100%", "92.5%", false},
		{"refused", "0", "0", true},
		{"unavailable", "1..2", "2", true},
		{"left", "100%", "0%", false},
		{"ttft p50", "at most 1s", "1.5s", false},
		{"ttft p99", "at most 2s", "1.5s", true},
		{"hold max", "at most 1m0s", "never measured", false},
		{"ttft p99", "at most 200ms", "250ms", false},
		{"goodput", "at least 40", "40", true},
		{"utilisation decode", "at most 85%", "90%", false},
		{"itl p50", "at most 1ms", "never measured", false},
		{"classes[chat].attainment", "at least 0.95", "0.9", false},
		{"refusals[epp: queue full]", "at most 3", "3", true},
		{"transfers.requests", "at least 1", "never measured", false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if got := Embedded().Expectations.Check(Measured{}); got != nil {
		t.Fatalf("the embedded scenario expects %v", got)
	}
}

// Every outcome can be expected, under its own name, and every field is held
// against something.
func TestEveryOutcomeCanBeExpected(t *testing.T) {
	var names []flow.Outcome
	for _, f := range strictyaml.Fields(reflect.TypeFor[OutcomeExpectations]()) {
		names = append(names, flow.Outcome(f.Name))
	}
	if d := cmp.Diff(flow.Outcomes(), names); d != "" {
		t.Error(d)
	}
	for i, o := range (&OutcomeExpectations{}).list() {
		if o.outcome != names[i] {
			t.Errorf("field %s is held against %s", names[i], o.outcome)
		}
	}
	for i, f := range strictyaml.Fields(reflect.TypeFor[SpanExpectations]()) {
		if got := (&SpanExpectations{}).list()[i].span; got != f.Name {
			t.Errorf("field %s is held against %s", f.Name, got)
		}
	}
}

// Limits that cannot be meant are told with what can.
func TestLimitsAreStrict(t *testing.T) {
	for text, want := range map[string]string{
		"ttft p99":                "such as ttft p99 <= 200ms",
		"ttft p98 <= 1s":          "did you mean \"ttft p9",
		"ttft p99 <= 200":         "a duration such as 200ms",
		"goodput >= fast":         "a number such as 40",
		"goodput >= -1":           "a number such as 40",
		"goodput >= NaN":          "a number such as 40",
		"utilisation <= 130%":     "a share such as 95%",
		"x <= 1":                  "they are requests/s, ",
		"utilisation prefil <= 1": "did you mean \"utilisation prefill\"",
	} {
		var l limit.Limit
		if err := l.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, expected %q in it", text, err, want)
		}
	}
	for _, text := range []string{"ttft p99 <= 200ms", "goodput >= 40.5", "kv use peak <= 12.5%"} {
		var l, again limit.Limit
		if err := errors.Join(l.UnmarshalText([]byte(text)), again.UnmarshalText([]byte(l.String()))); err != nil ||
			l != again || l.String() != text {
			t.Errorf("%s: found %+v, then %+v: %v", text, l, again, err)
		}
	}
}
