package virtual

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Figures of Mooncake's conversation trace (FAST25-release/traces/conversation_trace.jsonl).
const (
	idTokens    = 512
	groupMillis = 3000
	mostAtOnce  = 28
	mostInput   = 126_195
	mostOutput  = 2000
)

// prompt is a prompt that a later one may continue.
type prompt struct {
	ids           []int
	input, output int
}

// mooncake writes requests of the shape of Mooncake's conversation trace, as JSON lines: arrivals in groups every 3
// s, lengths from some hundred to 126,195 tokens, and hash ids that form a tree, in which four of ten requests
// continue an earlier prompt at its end.
func mooncake(to io.Writer, requests int) error {
	draw := rand.New(rand.NewPCG(1, 1))
	lognormal := func(mu, sigma float64) int { return int(math.Exp(mu + sigma*draw.NormFloat64())) }
	line := json.NewEncoder(to)
	var recent []prompt
	next := 1 // 0 is the common first id
	for at, sent := 0, 0; sent < requests; at += groupMillis {
		for range min(mostAtOnce, max(1, int(math.Round(10.2+5*draw.NormFloat64()))), requests-sent) {
			p := prompt{output: min(mostOutput, max(1, lognormal(5.6, 0.75)))}
			if len(recent) > 0 && draw.Float64() < 0.38 {
				from := recent[draw.IntN(len(recent))]
				p.input = from.input + from.output + lognormal(5.5, 1.2)
				p.ids = slices.Clone(from.ids[:from.input/idTokens])
			}
			if p.input == 0 || p.input > mostInput {
				p.input, p.ids = min(mostInput, idTokens+1+lognormal(8.55, 1.2)), []int{0}
			}
			for len(p.ids)*idTokens < p.input {
				p.ids = append(p.ids, next)
				next++
			}
			if recent = append(recent, p); len(recent) > 400 {
				recent = recent[1:]
			}
			sent++
			if err := line.Encode(struct {
				Timestamp int   `json:"timestamp"`
				Input     int   `json:"input_length"`
				Output    int   `json:"output_length"`
				IDs       []int `json:"hash_ids"`
			}{at, p.input, p.output, p.ids}); err != nil {
				return err
			}
		}
	}
	return nil
}

// The shape agrees with the published figures of the trace: 12,031 requests in 1,180 groups, prompts of 12,035 tokens
// on average with a median of 6,909, answers of 343 and 350, and 37.4 % of the ids in an earlier request.
func TestShape(t *testing.T) {
	var text bytes.Buffer
	if err := mooncake(&text, 12_031); err != nil {
		t.Fatal(err)
	}
	var inputs, outputs []int
	groups, before, known, all := map[int]int{}, map[int]int{}, 0, 0
	for lines := json.NewDecoder(&text); lines.More(); {
		var x struct {
			Timestamp int   `json:"timestamp"`
			Input     int   `json:"input_length"`
			Output    int   `json:"output_length"`
			IDs       []int `json:"hash_ids"`
		}
		if err := lines.Decode(&x); err != nil {
			t.Fatal(err)
		}
		inputs, outputs = append(inputs, x.Input), append(outputs, x.Output)
		groups[x.Timestamp]++
		if x.Timestamp%groupMillis != 0 || x.IDs[0] != 0 || len(x.IDs) != (x.Input+idTokens-1)/idTokens {
			t.Fatalf("%+v", x)
		}
		for i, id := range x.IDs {
			last := -1
			if i > 0 {
				last = x.IDs[i-1]
			}
			was, is := before[id]
			if is && was != last {
				t.Fatalf("%d follows %d and %d", id, was, last)
			}
			if all++; is {
				known++
			}
			before[id] = last
		}
	}
	for _, x := range []struct {
		name            string
		got, want, near float64
	}{
		{"groups", float64(len(groups)), 1180, 60},
		{"mean input", mean(inputs), 12_035, 1500},
		{"median input", middle(inputs), 6909, 700},
		{"longest input", float64(slices.Max(inputs)), mostInput, 1},
		{"mean output", mean(outputs), 343, 50},
		{"known ids in %", 100 * float64(known) / float64(all), 37.4, 4},
	} {
		if math.Abs(x.got-x.want) > x.near {
			t.Errorf("%s: %.1f, expected %g ± %g", x.name, x.got, x.want, x.near)
		}
	}
}

func mean(list []int) float64 {
	sum := 0
	for _, x := range list {
		sum += x
	}
	return float64(sum) / float64(len(list))
}

func middle(list []int) float64 {
	slices.Sort(list)
	return float64(list[len(list)/2])
}
