package trace

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// two clients: one that is steady and stops after its first window, and one that begins with the
// second, in heaps.
func twoClients() []Client {
	return []Client{
		{"chunk-0", strings.NewReader("0,2,1.0,Gamma,1.0,0.5\n600,0,0,,0,0\n1200,0,0,,0,0\n"),
			strings.NewReader(`{"0": {"input_tokens": "{100: 0.25, 200: 0.75}", "output_tokens": "{7: 1.0}"}}`)},
		{"chunk-1", strings.NewReader("0,0,0,,0,0\n600,4,3.0,Weibull,0.5,0.125\n1200,1.0,1.0,\n"),
			strings.NewReader(`{"0": {"input_tokens": "{}", "output_tokens": "{}"}, "1200": {"text_tokens": "{10: ` +
				`1}", "image_tokens": "{1000: 1}", "output_tokens": "{0: 1}"}, "600": {"input_tokens": "{300: 1.0}", ` +
				`"output_tokens": "{9: 1.0}"}}`)},
	}
}

// Requests come as often as their clients sent them in each window, as long as they were, and
// vary as the fitted law says.
func TestGenerated(t *testing.T) {
	got, err := Generate(twoClients(), Options{Most: 1e6, Speedup: 1, For: 1800, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	type kind struct{ input, output int }
	n, windows, last, squares := map[kind]int{}, [3]int{}, -1.0, 0.0
	for i, r := range got.Requests {
		at := r.At.Seconds()
		n[kind{r.Prompt[0].Bytes / bytesPerToken, r.Output}]++
		windows[int(at/600)]++
		if i > 0 && r.At < got.Requests[i-1].At {
			t.Fatalf("request %d comes at %v, and the one before at %v", i, r.At, got.Requests[i-1].At)
		}
		if at >= 600 && at < 1200 {
			if last > 0 {
				squares += (at - last) * (at - last) / (0.25 * 0.25)
			}
			last = at
		}
	}
	near := func(what string, got, want, within float64) {
		if math.Abs(got-want) > within {
			t.Errorf("%s: %v, expected %v ± %v", what, got, want, within)
		}
	}
	near("the first window's requests", float64(windows[0]), 1200, 4*math.Sqrt(1200))
	near("the second window's", float64(windows[1]), 2400, 4*math.Sqrt(5)*math.Sqrt(2400))
	near("the third window's", float64(windows[2]), 600, 4*math.Sqrt(600))
	near("the share of short prompts", float64(n[kind{100, 7}])/float64(windows[0]), 0.25, 0.06)
	near("the squared variation of Weibull's gaps", squares/float64(windows[1])-1, 5, 1.5)
	if n[kind{300, 9}] != windows[1] || n[kind{1010, 1}] != windows[2] || n[kind{100, 7}]+
		n[kind{200, 7}] != windows[0] {
		t.Errorf("%v of %v", n, windows)
	}
	assumed := strings.Join(got.Assumed, "\n")
	for _, want := range []string{"the summary of a trace", "without a law", "drawn independently",
		"text of as many tokens"} {
		if !strings.Contains(assumed, want) {
			t.Errorf("%q is not in\n%s", want, assumed)
		}
	}
}

// A part of the time, another rate, and a most.
func TestGeneratedPart(t *testing.T) {
	got, err := Generate(twoClients(), Options{Most: 1e6, Speedup: 2, From: 300, For: 600, Rate: 10, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if n := float64(len(got.Requests)); math.Abs(n-6000) > 6*math.Sqrt(5*6000) {
		t.Errorf("%v requests in 600 s at 10 a second", n)
	}
	if first, last := got.Requests[0].At.Seconds(),
		got.Requests[len(got.Requests)-1].At.Seconds(); first > 2 || last >= 300 || last < 290 {
		t.Errorf("twice as fast they come from %v s to %v s", first, last)
	}
	again, err := Generate(twoClients(), Options{Most: 17, Speedup: 2, From: 300, Rate: 10, Seed: 5})
	if err != nil || len(again.Requests) != 17 {
		t.Errorf("%v, %d requests", err, len(again.Requests))
	}
}

func TestGeneratedMistakes(t *testing.T) {
	const rates, lengths = "0,2,1.0,Gamma,1.0,0.5\n", `{"0": {"input_tokens": "{100: 1}", "output_tokens": "{7: 1.0}"}}`
	for _, x := range []struct {
		rates, lengths, want string
		from                 float64
	}{
		{"0,much\n", lengths, "line 1 of its trace: found \"0,much\"; expected requests per second", 0},
		{"600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", lengths, "expected them in their order", 0},
		{"0,1,1,Pareto,1,1\n", lengths, `found the law "Pareto"; expected Gamma, Weibull or none`, 0},
		{"0,1,1,Gamma,0,1\n", lengths, "the shape of a law", 0},
		{rates, "[]", "begins with [; expected a JSON object", 0},
		{rates, "", "EOF; expected a JSON object", 0},
		{rates, `{"x": {}}`, "the window \"x\"", 0},
		{rates, `{"0": {"input_tokens": "{100: much}"}}`, `input_tokens: found "100: much"`, 0},
		{rates, `{"0": {"input_tokens": "{100: 0}"}}`, "expected how often each length occurred", 0},
		{rates, "{}", "its dataset has no lengths", 0},
		{rates, lengths, "no client sends a request from 5000 s on", 5000},
	} {
		_, err := Generate([]Client{{"chunk-0", strings.NewReader(x.rates), strings.NewReader(x.lengths)}},
			Options{Most: 10, Speedup: 1, From: x.from, For: 60})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q, %q: %v, want %q", x.rates, x.lengths, err, x.want)
		}
	}
	if _, err := Generate(nil, Options{}); err == nil {
		t.Error("no clients are taken")
	}
}

// Of any trace with times a part can be asked for.
func TestFrom(t *testing.T) {
	var text strings.Builder
	text.WriteString("Timestamp,Request tokens,Response tokens\n")
	for i := range 100 {
		fmt.Fprintf(&text, "%d,%d,5\n", 7+i, i+1)
	}
	got, err := Read(strings.NewReader(text.String()),
		Options{Format: BurstGPT, Most: 1000, Speedup: 1, From: 30, For: 20})
	if err != nil || len(got.Requests) != 20 || got.Requests[0].Prompt[0].Bytes != 31*bytesPerToken ||
		got.Requests[0].At != 0 {
		t.Errorf("%v %+v", err, got)
	}
	if _, err := Read(strings.NewReader(text.String()),
		Options{Format: BurstGPT, Most: 1000, Speedup: 1, From: 300}); err == nil ||
		!strings.Contains(err.Error(), "none of its 100 requests") {
		t.Error(err)
	}
}

// Nothing that clients' files hold ends in a panic, or in a request that cannot be made.
func FuzzGenerate(f *testing.F) {
	f.Add("0,2,1.0,Gamma,1.0,0.5\n600,0,0,,0,0\n",
		`{"0": {"input_tokens": "{100: 0.25}", "output_tokens": "{7: 1.0}"}}`, 10.0)
	f.Add("0,1000000,1,Weibull,0.001,1\n1,1,1", `{"0": {"text_tokens": "{0: 1}", "output_tokens": "{7: 1.0}"}}`, 0.0)
	f.Fuzz(func(t *testing.T, rates, lengths string, from float64) {
		got, err := Generate([]Client{{"c", strings.NewReader(rates), strings.NewReader(lengths)}},
			Options{Most: 50, Speedup: 1, From: math.Abs(math.Mod(from, 1e6)), For: 100})
		if err != nil {
			return
		}
		for i, r := range got.Requests {
			if r.At < 0 || r.Prompt[0].Bytes < 1 || r.Output < 1 || i > 0 && r.At < got.Requests[i-1].At {
				t.Fatalf("%+v", r)
			}
		}
	})
}
