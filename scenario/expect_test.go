package scenario

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/scenario/limit"
)

func TestExpectations(t *testing.T) {
	s, err := Parse("x.yaml",
		[]byte(`{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a}], expectations: {
		outcomes: {completed: 95%..100%, refused: 0, unavailable: 1..2, left: 100%},
		spans: {ttft: {p50: 1s, p99: 2s}, hold: {max: 1m}},
		measures: ["ttft p99 <= 200ms", "goodput>=40", "utilisation decode <= 85%", "itl p50 <= 1ms"],
		figures: ["classes[chat].attainment >= 0.95", "refusals[epp: queue full] <= 3", "transfers.requests >= 1"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{"requests": 40, "outcomes completed": 37, "outcomes refused": 0,
		"outcomes unavailable": 2,
		"outcomes left":        0, "spans ttft p50": 1.5, "spans ttft p99": 1.5, "measures ttft p99 value": 0.25,
		"measures goodput value": 40, "measures utilisation decode value": 0.9, "classes chat attainment": 0.9,
		"refusals epp: queue full": 3}
	got := s.Expectations.Check(func(path ...string) (float64, bool) {
		v, ok := found[strings.Join(path, " ")]
		return v, ok
	})
	want := []record.Expectation{
		{What: "completed", Expected: "95%..100%", Found: "92.5%", OK: false},
		{What: "refused", Expected: "0", Found: "0", OK: true},
		{What: "unavailable", Expected: "1..2", Found: "2", OK: true},
		{What: "left", Expected: "100%", Found: "0%", OK: false},
		{What: "ttft p50", Expected: "at most 1s", Found: "1.5s", OK: false},
		{What: "ttft p99", Expected: "at most 2s", Found: "1.5s", OK: true},
		{What: "hold max", Expected: "at most 1m0s", Found: "never measured", OK: false},
		{What: "ttft p99", Expected: "at most 200ms", Found: "250ms", OK: false},
		{What: "goodput", Expected: "at least 40", Found: "40", OK: true},
		{What: "utilisation decode", Expected: "at most 85%", Found: "90%", OK: false},
		{What: "itl p50", Expected: "at most 1ms", Found: "never measured", OK: false},
		{What: "classes[chat].attainment", Expected: "at least 0.95", Found: "0.9", OK: false},
		{What: "refusals[epp: queue full]", Expected: "at most 3", Found: "3", OK: true},
		{What: "transfers.requests", Expected: "at least 1", Found: "never measured", OK: false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if got := Embedded().Expectations.Check(nil); got != nil {
		t.Fatalf("the embedded scenario expects %v", got)
	}
}

// Every outcome can be expected, under its own name.
func TestEveryOutcomeCanBeExpected(t *testing.T) {
	var names []record.Outcome
	for _, f := range strictyaml.Fields(reflect.TypeFor[OutcomeExpectations]()) {
		names = append(names, record.Outcome(f.Name))
	}
	if d := cmp.Diff(record.Outcomes(), names); d != "" {
		t.Error(d)
	}
}

// An error for an invalid limit names the valid ones.
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
