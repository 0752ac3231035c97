package scrape

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/picker"
)

func apply(t *testing.T, m picker.Metrics, page string) picker.Metrics {
	t.Helper()
	e := Engines()["vllm"]
	p, err := Parse([]byte(page), e.Wants)
	if err == nil {
		e.Apply(p, &m)
	}
	return m
}

func TestHabitsOfTheRealPicker(t *testing.T) {
	was := picker.Metrics{Waiting: 7, Running: 7, KVUsage: .7}
	typed := "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting"
	for _, c := range []struct {
		name, page string
		want       picker.Metrics
	}{
		{"empty page keeps everything", "", was},
		{"no TYPE line is 0", "vllm:num_requests_waiting 3\n", picker.Metrics{Running: 7, KVUsage: .7}},
		{"typed", typed + "{m=\"a\"} 3\n", picker.Metrics{Waiting: 3, Running: 7, KVUsage: .7}},
		{"first series wins", typed + "{m=\"a\"} 3\nvllm:num_requests_waiting{m=\"b\"} 5\n", picker.Metrics{Waiting: 3, Running: 7, KVUsage: .7}},
		{"newest timestamp wins", typed + "{m=\"a\"} 3 10\nvllm:num_requests_waiting{m=\"b\"} 5 20\n", picker.Metrics{Waiting: 5, Running: 7, KVUsage: .7}},
		{"fractions are cut", typed + " 2.7\n", picker.Metrics{Waiting: 2, Running: 7, KVUsage: .7}},
		{"not a number is not a figure", typed + " NaN\n", was},
		{"infinite is not a figure", typed + " +Inf\n", was},
		{"one broken line spoils the page", typed + " 3\nfoo{ 1\n", was},
		{"a page that breaks off", typed + " 3", was},
	} {
		if diff := cmp.Diff(c.want, apply(t, was, c.page)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestAdapters(t *testing.T) {
	m := apply(t, picker.Metrics{}, "# TYPE vllm:lora_requests_info gauge\n"+
		`vllm:lora_requests_info{max_lora="2",running_lora_adapters="a1, a2",waiting_lora_adapters="a3"} 1.7e9`+"\n"+
		`vllm:lora_requests_info{max_lora="9",running_lora_adapters="",waiting_lora_adapters=""} 1.6e9`+"\n")
	want := &picker.LoRA{Max: 2, Running: []string{"a1", "a2"}, Waiting: []string{"a3"}}
	if diff := cmp.Diff(want, m.LoRA); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("# TYPE a gauge\na{b=\"c\\n\"} 1e3 5\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		e := Engines()["vllm"]
		for _, want := range []func(string) bool{e.Wants, func(string) bool { return true }} {
			p, err := Parse(page, want)
			if err == nil {
				var m picker.Metrics
				e.Apply(p, &m)
			}
		}
	})
}
