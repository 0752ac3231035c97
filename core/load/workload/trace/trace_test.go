package trace

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Each format becomes requests with its times and lengths; a note says that failed requests are left out.
func TestRead(t *testing.T) {
	for _, x := range []struct {
		format, text string
		seconds      []float64
		input, out   []int
		assumed      string
	}{
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.5000000,100,20\r\n2023-11-16 " +
			"18:15:48.7500000,7,1", []float64{0, 2.25}, []int{100, 7}, []int{20, 1},
			"does not say which prompts share beginnings"},
		{BurstGPT, "Timestamp,Session ID,Model,Request tokens,Response tokens,Total tokens,Log " +
			"Type\n5,1,ChatGPT,10,20,30,API log\n9,2,GPT-4,11,0,11,API log\n45,,GPT-4,12,3,15,API log\n",
			[]float64{0, 40}, []int{10, 12}, []int{20, 3}, "1 requests without an answer"},
		{Mooncake, `{"timestamp":0,"input_length":1030,"output_length":5,"hash_ids":[0,1,2]}` + "\n" +
			`{"timestamp":3000,"input_length":600,"output_length":6,"hash_ids":[0,7]}`, []float64{0, 3},
			[]int{1030, 600}, []int{5, 6}, "identifies 512 tokens"},
		{Mooncake, `{"created_time":0.5,"input_tokens":3,"output_tokens":5,"hash_ids":[4],"session_id":"a"}` + "\n",
			[]float64{0}, []int{3}, []int{5}, "do not wait for the previous answer"},
		{Bailian, `{"timestamp":1.5,"input_length":20,"output_length":5,"hash_ids":[0,1],"chat_id":1,` +
			`"parent_chat_id":-1,"turn":1,"type":"text"}` + "\n" +
			`{"timestamp":2,"input_length":17,"output_length":6,"hash_ids":[7,1]}`, []float64{0, .5}, []int{20, 17},
			[]int{5, 6}, "identifies 16 tokens"},
	} {
		got, err := Read(strings.NewReader(x.text), Options{Format: x.format, Most: 10, Speedup: 1})
		if err != nil || len(got.Requests) != len(x.input) {
			t.Errorf("%s: %v %+v", x.format, err, got)
			continue
		}
		for i, r := range got.Requests {
			if r.At.Seconds() != x.seconds[i] || r.Prompt[0].Bytes != 4*x.input[i] || r.Output != x.out[i] {
				t.Errorf("%s: request %d: %+v", x.format, i, r)
			}
		}
		if !strings.Contains(strings.Join(got.Assumed, "\n"), x.assumed) {
			t.Errorf("%s: assumed %q", x.format, got.Assumed)
		}
	}
}

// Every reader lists all that it assumed, and nothing else.
func TestAssumed(t *testing.T) {
	const different = "it does not say which prompts share beginnings: all are different, and caches find nothing " +
		"of them"
	const answers = "the content of answers is unknown: a later prompt contains one only if its own hash ids say so"
	azure := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,100,20\n"
	for _, x := range []struct {
		text string
		o    Options
		want []string
	}{
		{azure, Options{Format: Azure}, []string{different}},
		{"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-05-10 00:00:00.01,2,812,97\n", Options{Format: Azure},
			[]string{different, "the images of its requests are left out"}},
		{azure + "2023-11-16 18:15:40.5,100,20\n2023-11-16 18:15:41.5,100,0\n", Options{Format: Azure, Spread: 1},
			[]string{different, "its lines are not in the order of their times, and are sorted",
				"1 requests without an answer, which failed, are left out",
				"every request comes up to 1 s after its time, evenly"}},
		{"Timestamp,Model,Request tokens,Response tokens\n5,x,10,20\n", Options{Format: BurstGPT},
			[]string{different, "its requests to several models are sent to one"}},
		{`{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}`, Options{Format: Mooncake},
			[]string{"a hash id identifies 512 tokens and all tokens before them", answers}},
		{`{"timestamp":0,"input_length":20,"output_length":5,"hash_ids":[0,1],"chat_id":3}`, Options{Format: Bailian},
			[]string{"a hash id identifies 16 tokens and all tokens before them", answers,
				"requests of a session come at the times of their lines, and do not wait for the previous answer"}},
		{`{"timestamp":0,"input_length":20,"output_length":5,"hash_ids":[0],"priority":0,"delay":3,"request_id":"x"}`,
			Options{Format: Mooncake},
			[]string{"a hash id identifies 512 tokens and all tokens before them", answers,
				"further fields of its requests are left out: delay, priority"}},
		{`{"timestamp":0,"input_length":9,"output_length":5,"hash_ids":[0],"type":"image"}`, Options{Format: Bailian},
			[]string{"a hash id identifies 16 tokens and all tokens before them", answers,
				"requests whose type is not text are text of as many tokens"}},
		{`[{"conversations":[{"from":"narrator","value":"Be short"},{"from":"human","value":"Hello"},{"from":"gpt",` +
			`"value":"Good morning"}]}]`, Options{Format: ShareGPT, Chat: true}, []string{
			"it has no times: the workload determines the arrivals, and requests of a conversation do not wait for " +
				"the previous answer",
			"words are invented, with the lengths of the trace's, and equal where the trace's are equal; a token of " +
				"an answer is four characters", "every message is the user's",
			"1 messages of neither human nor gpt count as the user's"}},
	} {
		x.o.Most, x.o.Speedup = 10, 1
		got, err := Read(strings.NewReader(x.text), x.o)
		if err != nil {
			t.Fatalf("%s: %v", x.o.Format, err)
		}
		if diff := cmp.Diff(x.want, got.Assumed); diff != "" {
			t.Errorf("%s: %s", x.o.Format, diff)
		}
	}
}

// Errors name the line.
func TestMistakes(t *testing.T) {
	for _, x := range [][3]string{
		{Azure, "a,b\n", "line 1: found"},
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2", "line 2: TIMESTAMP"},
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,x,2", "line 2: ContextTokens"},
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"},
		{BurstGPT, "Timestamp,Request tokens,Response tokens\nNaN,1,2", "expected seconds"},
		{Mooncake, `{"timestamp":0,"input_length":1030,"output_length":5,"hash_ids":[0]}`,
			"1 hash ids for 1030 tokens"}, {Mooncake, "x", "line 1"},
		{Mooncake, `{"input_length":1}`, "timestamp is missing"},
	} {
		if _, err := Read(strings.NewReader(x[1]),
			Options{Format: x[0], Most: 10, Speedup: 1, Block: 512}); err == nil ||
			!strings.Contains(err.Error(), x[2]) {
			t.Errorf("%s: %v, want %q", x[1], err, x[2])
		}
	}
}

// Nothing that a file holds ends in a panic, or in a request that cannot be made.
func FuzzRead(f *testing.F) {
	ofLines := []string{Azure, BurstGPT, ShareGPT, Bailian, Mooncake, OTLP, Envoy}
	f.Add(uint8(0), "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,100,20\n")
	f.Add(uint8(1), "Timestamp,Model,Request tokens,Response tokens\n5,x,10,20\n")
	f.Add(uint8(2), `[{"conversations":[{"from":"human","value":"Hello"},{"from":"gpt","value":"Good morning"}]}]`)
	f.Add(uint8(3), `{"timestamp":0,"input_length":20,"output_length":5,"hash_ids":[0,1],"chat_id":3}`)
	f.Add(uint8(4), `{"timestamp":0,"input_length":1030,"output_length":5,"hash_ids":[0,1,2]}`)
	f.Add(uint8(5), spanLines)
	f.Add(uint8(5), "\x0a\x1e\x12\x1c\x12\x1a\x0a\x01\x01\x12\x01\x02\x39\x00\x00\x00\x00\x00\x00\x00\x01"+
		"\x4a\x07\x0a\x01a\x12\x02\x18\x05")
	f.Add(uint8(6), `{"start_time":"2024-03-01T12:00:00Z","prompt_tokens":7,"completion_tokens":"8","response_code":200}`)
	f.Fuzz(func(t *testing.T, format uint8, text string) {
		got, err := Read(strings.NewReader(text),
			Options{Format: ofLines[int(format)%len(ofLines)], Most: 100, Speedup: 2, Chat: true, Spread: 1})
		if err != nil {
			return
		}
		for i, r := range got.Requests {
			if r.At < 0 || r.Prompt[0].Bytes < 1 || i > 0 && r.At < got.Requests[i-1].At {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// FuzzLine reads lines the short way, and as encoding/json does.
func FuzzLine(f *testing.F) {
	for _, text := range []string{
		`{"timestamp":0,"input_length":1030,"output_length":5,"hash_ids":[0,1,2]}`,
		` { "timestamp" : 27.50 , "hash_ids" : [ 18446744073709551615 , 3 ], "hash_ids" : [7] } `,
		`{"timestamp":01,"input_length":1}`, `{"timestamp":0.}`, `{"timestamp":.5}`, `{"timestamp":0.0.1}`,
		`{"timestamp":}`, `{"input_length":1.5}`, `{"hash_ids":[]}`, `{"hash_ids":[1,]}`, `{"hash_ids":[1]`,
		`{"hash_ids":null}`, `{}`, `{"timestamp":1,}`, `{"timestamp":1}x`, `{"timest\u0061mp":1}`, `{"Timestamp":1}`,
		`{"hash_ids":[18446744073709551616]}`, "{\"timestamp\":\u00a01}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var short, long blocks
		if !short.read(text) {
			return
		}
		if err := json.Unmarshal([]byte(text), &long); err != nil {
			t.Fatalf("read, but %v", err)
		}
		if diff := cmp.Diff(long, short); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The short way is the one that lines of Mooncake take.
func TestLinesTakeTheShortWay(t *testing.T) {
	var x blocks
	if !x.read(`{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2354]}`) {
		t.Error("not read")
	}
}

// An id of Bailian's stands for its block alone: the same one behind another is
// other content.
func TestBlocksAreChained(t *testing.T) {
	got, err := Read(strings.NewReader(`{"timestamp":1,"input_length":32,"output_length":5,"hash_ids":[0,1]}
{"timestamp":2,"input_length":32,"output_length":6,"hash_ids":[7,1]}
{"timestamp":2,"input_length":32,"output_length":6,"hash_ids":[0,1]}`), Options{Format: Bailian, Most: 10, Speedup: 1})
	if err != nil {
		t.Fatal(err)
	}
	heads := func(i int) []uint64 { return got.Requests[i].Prompt[0].Heads }
	if heads(0)[1] == heads(1)[1] || !slices.Equal(heads(0), heads(2)) {
		t.Error(heads(0), heads(1), heads(2))
	}
}

// Every answer of a conversation is a request that carries all before it; the same
// words are the same again.
func TestConversations(t *testing.T) {
	got, err := Read(strings.NewReader(`[{"id":"a","conversations":[{"from":"system","value":"Be brief."},{"from":"human","value":"Hello"},{"from":"gpt","value":"Good morning"},{"from":"gpt","value":"and again"},
		{"from":"human","value":"Hello"},{"from":"gpt","value":""},{"from":"gpt","value":"12345678"}]},{"conversations":[{"from":"human","value":"Hello"}]},{"conversations":[]}]`),
		Options{Format: ShareGPT, Most: 10, Speedup: 1, Chat: true})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Untimed || len(got.Requests) != 2 || len(got.Requests[0].Prompt) != 2 || got.Requests[0].Output != 3 ||
		len(got.Requests[1].Prompt) != 5 || got.Requests[1].Output != 2 {
		t.Fatalf("%+v", got)
	}
	if p := got.Requests[1].Prompt; !reflect.DeepEqual(p[1], p[4]) || reflect.DeepEqual(p[1], p[0]) ||
		p[0].Bytes != len("Be brief.") {
		t.Errorf("%+v", p)
	}
	for text, want := range map[string]string{"{}": "expected a JSON array",
		`[{"conversations":[]}]`: "no answer in it", `[1]`: "conversation 0"} {
		if _, err := Read(strings.NewReader(text), Options{Format: ShareGPT, Most: 1, Chat: true}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Read(strings.NewReader("[]"), Options{Format: ShareGPT, Most: 1}); err == nil ||
		!strings.Contains(err.Error(), "api: chat") {
		t.Error(err)
	}
}

// Spread times stay within their steps and in order.
func TestSpread(t *testing.T) {
	text := strings.Repeat(`{"timestamp":3000,"input_length":3,"output_length":5,"hash_ids":[4]}`+"\n", 5) +
		strings.Repeat(`{"timestamp":6000,"input_length":3,"output_length":5,"hash_ids":[4]}`+"\n", 5)
	got, err := Read(strings.NewReader(text), Options{Format: Mooncake, Most: 10, Speedup: 1, Spread: 3, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	times := map[machine.Time]bool{}
	for i, r := range got.Requests {
		times[r.At] = true
		if i > 0 && r.At < got.Requests[i-1].At || r.At > 6*machine.Second {
			t.Errorf("%d: %v", i, r.At)
		}
	}
	if len(times) != 10 || got.Requests[5].At < machine.Second/10 {
		t.Error(times)
	}
}

// What is written is read again: times, lengths, and what prompts have in common.
func TestWritten(t *testing.T) {
	c := &workload.Config{Seed: 3, Model: "m", Requests: 40, API: workload.Completions,
		Schedule: workload.Schedule{Rate: 2, Burstiness: 1},
		Prompts: workload.Prompts{Characters: true,
			Prefixes: []string{strings.Repeat("a", 4*512), strings.Repeat("b", 4*512)},
			Length:   func(d *machine.Draw) int { return int(d.Between(1, 9000)) }},
		Output: func(*machine.Draw) int { return 7 }}
	for _, format := range []string{Azure, Mooncake, BurstGPT, Bailian, ShareGPT} {
		var b bytes.Buffer
		lost, err := Write(&b, c, WriteOptions{Format: format, Block: 512})
		if err != nil || (lost != nil) != (format == ShareGPT) {
			t.Fatal(err, lost)
		}
		got, err := Read(&b, Options{Format: format, Most: 100, Speedup: 1, Chat: format == ShareGPT})
		if err != nil || len(got.Requests) != 40 {
			t.Fatalf("%s: %v %d", format, err, len(got.Requests))
		}
		arrivals, first, beginnings := c.Arrivals(), machine.Time(0), map[uint64]bool{}
		for i, r := range got.Requests {
			at, _ := arrivals.Next()
			if i == 0 {
				first = at
			}
			made := c.Conversation(i, i).Request()
			text, _, err := lengths(&made)
			if err != nil {
				t.Fatal(err)
			}
			size := (len(text) + 3) / 4 * 4
			if format == ShareGPT { // has the text, and no times
				size, first = len(text), at
			}
			if d := r.At - (at - first); d > machine.Millisecond || d < -machine.Millisecond ||
				r.Prompt[0].Bytes != size || r.Output != 7 {
				t.Fatalf("%s: request %d: %+v, made at %v with %d bytes", format, i, r, at-first, len(text))
			}
			beginnings[r.Prompt[0].Heads[0]] = true
		}
		if want := map[string]int{Azure: 40, BurstGPT: 40, Mooncake: 2, Bailian: 2,
			ShareGPT: 40}[format]; len(beginnings) != want {
			t.Errorf("%s: %d beginnings, want %d", format, len(beginnings), want)
		}
	}
	if _, err := Write(io.Discard, &workload.Config{Requests: 1}, WriteOptions{Format: Azure}); err == nil ||
		!strings.Contains(err.Error(), "expected a rate") {
		t.Error(err)
	}
}

// The lengths of requests by every API are written; a note lists what has no place in a trace.
func TestWrittenOfEveryAPI(t *testing.T) {
	for _, api := range []workload.API{workload.Chat, workload.Completions, workload.Messages, workload.Responses,
		workload.Generate} {
		c := &workload.Config{Seed: 3, Model: "m", Requests: 2, API: api, MaxTokens: 7,
			Schedule: workload.Schedule{Rate: 2},
			Prompts:  workload.Prompts{Characters: true, Length: func(*machine.Draw) int { return 120 }}}
		var b bytes.Buffer
		lost, err := Write(&b, c, WriteOptions{Format: Azure})
		if err != nil || lost != nil {
			t.Errorf("%v: %v %v", api, err, lost)
			continue
		}
		got, err := Read(&b, Options{Format: Azure, Most: 10, Speedup: 1})
		if err != nil || len(got.Requests) != 2 || got.Requests[0].Prompt[0].Bytes != 120 ||
			got.Requests[1].Output != 7 {
			t.Errorf("%v: %v %+v", api, err, got)
		}
	}
	if _, err := Write(io.Discard,
		&workload.Config{Requests: 1, Schedule: workload.Schedule{Rate: 1}, API: workload.Embed,
			Prompts: workload.Prompts{Text: "x"}, Tokenizer: tokens.Packed{}},
		WriteOptions{Format: Azure}); err == nil || !strings.Contains(err.Error(), "embeddings") {
		t.Error(err)
	}
	class := func(name, model string) workload.Class {
		return workload.Class{Share: 0.5,
			Config: &workload.Config{Seed: 3, Model: model, Class: name, Prompts: workload.Prompts{Text: "x"},
				MaxTokens: 5,
				Headers:   []workload.Header{{Header: header.Header{Name: "x-tenant", Value: name}, Share: 1}}}}
	}
	lost, err := Write(io.Discard,
		&workload.Config{Seed: 3, Requests: 20, Schedule: workload.Schedule{Rate: 1},
			Classes: []workload.Class{class("a", "m"), class("b", "n")}},
		WriteOptions{Format: BurstGPT})
	if d := cmp.Diff([]string{"requests ask for 2 models or adapters, which the format does not name",
		"classes of traffic and the objectives of good requests are left out",
		"the headers of 20 requests are left out"}, lost); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}
