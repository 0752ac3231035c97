package datalayer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

func apply(t *testing.T, m picker.Metrics, page string) picker.Metrics {
	t.Helper()
	e := engines()["vllm"]
	p, err := metrics.Parse([]byte(page), e.wants)
	if err == nil {
		e.apply(p, &m)
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
		{"first series wins", typed + "{m=\"a\"} 3\nvllm:num_requests_waiting{m=\"b\"} 5\n",
			picker.Metrics{Waiting: 3, Running: 7, KVUsage: .7}},
		{"newest timestamp wins", typed + "{m=\"a\"} 3 10\nvllm:num_requests_waiting{m=\"b\"} 5 20\n",
			picker.Metrics{Waiting: 5, Running: 7, KVUsage: .7}},
		{"fractions are cut", typed + " 2.7\n", picker.Metrics{Waiting: 2, Running: 7, KVUsage: .7}},
		{"not a number is not a figure", typed + " NaN\n", was},
		{"infinite is not a figure", typed + " +Inf\n", was},
		{"out of range spoils the page", typed + " 1e400\n", was},
		{"a blank behind a value spoils the page", typed + " 3 \n", was},
		{"so does a carriage return", typed + " 3\r\n", was},
		{"and a second TYPE line, even of another family", typed + " 3\n# TYPE x gauge\n# TYPE x gauge\n", was},
		{"types in any case", "# TYPE vllm:num_requests_waiting GAUGE\nvllm:num_requests_waiting 3\n",
			picker.Metrics{Waiting: 3, Running: 7, KVUsage: .7}},
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
		e := engines()["vllm"]
		for _, want := range []func(string) bool{e.wants, func(string) bool { return true }} {
			p, err := metrics.Parse(page, want)
			if err == nil {
				var m picker.Metrics
				e.apply(p, &m)
			}
		}
	})
}

func TestWhatAPageLeavesOut(t *testing.T) {
	first := apply(t, picker.Metrics{}, "# TYPE vllm:lora_requests_info gauge\n"+
		`vllm:lora_requests_info{max_lora="4",running_lora_adapters="a1,a1",waiting_lora_adapters=""} 1`+
		"\n# TYPE vllm:cache_config_info gauge\n"+
		`vllm:cache_config_info{block_size="32",num_gpu_blocks="100"} 1`+"\n")
	next := apply(t, first, "# TYPE vllm:lora_requests_info gauge\n"+
		`vllm:lora_requests_info{max_lora="x",waiting_lora_adapters="a2"} 1`+"\n# TYPE vllm:cache_config_info gauge\n"+
		`vllm:cache_config_info{other="1"} 1`+"\n")
	want := picker.Metrics{LoRA: &picker.LoRA{Max: 4, Waiting: []string{"a2"}}, CacheBlocks: 100}
	if diff := cmp.Diff(want, next); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a1"}, first.LoRA.Running); diff != "" {
		t.Error(diff)
	}
}
