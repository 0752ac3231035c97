package constraint

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/report"
)

func TestOrder(t *testing.T) {
	both := func(busy, prompts, kv, running float64, preemptions uint64) []Use {
		return OfLoad([]report.LoadSummary{
			{Role: report.Both, Servers: 1, Slots: 10, Busy: report.BusySummary{Mean: busy}, Prompts: prompts,
				KV: report.LevelSummary{Mean: kv}, Running: report.LevelSummary{Mean: running},
				Preemptions: preemptions}},
			1000)
	}
	for _, c := range []struct {
		name  string
		uses  []Use
		first string
		full  bool
	}{
		{"prompts take the time", both(0.99, 0.7, 0.3, 5, 0), "prefill compute 70.0% in use", true},
		{"tokens take the time", both(0.99, 0.2, 0.8, 8, 0), "decode compute 79.0% in use", true},
		{"little is in use", both(0.5, 0.1, 0.3, 2, 0), "decode compute 40.0% in use", false},
		{"the KV cache is full", both(1, 0.2, 0.95, 8, 0), "KV memory 95.0% in use", true},
		{"requests lose their blocks", both(1, 0.2, 0.7, 8, 10), "KV memory 70.0% in use, with preemptions", true},
		{"few lose their blocks", both(1, 0.2, 0.7, 8, 9), "decode compute 80.0% in use", true},
		{"no place to run", both(1, 0.2, 0.5, 9.7, 0), "queue 97.0% in use", true},
		{"the picker", append(both(0.3, 0.1, 0.1, 1, 0), Use{Kind: Picker, Share: 0.98}), "picker 98.0% in use", true},
		{"a link", append(both(0.95, 0.1, 0.92, 1, 0), Use{Kind: Transfer, Share: 0.93}), "transfer 93.0% in use",
			true},
		{"equally full: the one that holds back others",
			append(both(1, 0, 0.95, 9.5, 0), Use{Kind: Picker, Share: 0.95}), "picker 95.0% in use", true},
	} {
		ordered, full := Order(c.uses)
		if ordered[0].String() != c.first || full != c.full {
			t.Errorf("%s: found %s, full %v; expected %s, %v", c.name, ordered[0], full, c.first, c.full)
		}
	}
	if list, full := Order(nil); list != nil || full {
		t.Errorf("of nothing: found %v, %v", list, full)
	}
}

// Servers that only prefill compute no tokens, and are listed separately from those that only decode.
func TestRolesApart(t *testing.T) {
	list := OfLoad([]report.LoadSummary{
		{Role: report.Prefills, Servers: 1, Slots: 10, Busy: report.BusySummary{Mean: 0.8}, Prompts: 0.8},
		{Pool: "b", Role: report.Decodes, Servers: 1, Slots: 10, Busy: report.BusySummary{Mean: 0.6}},
	}, 1)
	var words []string
	for _, u := range Mean(list, list) {
		words = append(words, u.String())
	}
	const expected = "KV memory (prefill servers) 0.0% in use|queue (prefill servers) 0.0% in use|prefill compute " +
		"(prefill servers) 80.0% in use|" +
		"KV memory (b decode servers) 0.0% in use|queue (b decode servers) 0.0% in use|decode compute (b decode " +
		"servers) 60.0% in use"
	if found := strings.Join(words, "|"); found != expected {
		t.Errorf("found\n%s\nexpected\n%s", found, expected)
	}
}
