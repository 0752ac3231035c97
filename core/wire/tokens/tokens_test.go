package tokens

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func small(t testing.TB) *BPE {
	t.Helper()
	b, err := ParseTokenizerJSON(readFile(t, "testdata/tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testdata/encodings.json was recorded with Hugging Face tokenizers 0.23.3 on
// testdata/tokenizer.json (a vocabulary of 549 trained for this test) with each
// of the pre-tokenizers that splitters knows.
func TestEncodingsOfTokenizers(t *testing.T) {
	var cases []struct {
		Name         string
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		Normalizer   json.RawMessage
		IgnoreMerges bool `json:"ignore_merges"`
		Encodings    []struct {
			Text string
			IDs  []uint32
		}
	}
	if err := json.Unmarshal(readFile(t, "testdata/encodings.json"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var file map[string]any
			if err := json.Unmarshal(readFile(t, "testdata/tokenizer.json"), &file); err != nil {
				t.Fatal(err)
			}
			file["pre_tokenizer"], file["normalizer"] = c.PreTokenizer, c.Normalizer
			file["model"].(map[string]any)["ignore_merges"] = c.IgnoreMerges
			data, err := json.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := ParseTokenizerJSON(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Encodings {
				got := b.Encode([]uint32{}, e.Text)
				if diff := cmp.Diff(e.IDs, got); diff != "" {
					t.Errorf("%q: %s\n%q", e.Text, diff, pieces(b, got))
				}
				if back := Decode(b, got); c.Normalizer == nil && c.Name == "llama3" && back != e.Text {
					t.Errorf("%q came back as %q", e.Text, back)
				}
			}
		})
	}
}

// testdata/pieces.json was recorded from the same library's Split: where each
// expression cuts, which token ids alone do not always show.
func TestPiecesOfTokenizers(t *testing.T) {
	var cases []struct {
		Name, Pattern string
		Pieces        [][]string
	}
	if err := json.Unmarshal(readFile(t, "testdata/pieces.json"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		split, ok := splitters[c.Pattern]
		if !ok || len(c.Pieces) < 150 {
			t.Fatalf("%s: known %v, %d texts", c.Name, ok, len(c.Pieces))
		}
		for _, want := range c.Pieces {
			text := strings.Join(want, "")
			var got []string
			for rest := text; rest != ""; {
				n := split(rest)
				got, rest = append(got, rest[:n]), rest[n:]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %q: %s", c.Name, text, diff)
			}
		}
	}
}

func pieces(t Tokenizer, ids []uint32) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(t.Decode(nil, id)))
	}
	return out
}

// Long pieces go through a heap, short ones through a scan; both merge alike.
func TestLongPiecesMergeAlike(t *testing.T) {
	b := small(t)
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.StringOfN(rapid.RuneFrom([]rune("theingwdas ")), 2, 47, -1).Draw(t, "piece")
		short := b.encodePiece(nil, piece)
		var ids []uint32
		for i := range len(piece) {
			ids = append(ids, b.bytes[piece[i]])
		}
		if diff := cmp.Diff(short, b.mergeLong(ids)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Encode and Decode are inverse, and a stream of tokens is valid UTF-8 at
// every moment and complete at its end.
func TestRoundTrip(t *testing.T) {
	for name, tokenizer := range map[string]Tokenizer{"packed": Packed{}, "bpe": small(t)} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			text := rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(t, "text")
			ids := tokenizer.Encode(nil, text)
			if Count(tokenizer, text) != len(ids) {
				t.Fatalf("Count %d, %d tokens", Count(tokenizer, text), len(ids))
			}
			var d Detokenizer
			streamed := ""
			for _, id := range ids {
				part := d.Next(tokenizer, id)
				if !utf8.ValidString(part) || len(d.held) > 3 {
					t.Fatalf("part %q, %d bytes held back", part, len(d.held))
				}
				streamed += part
			}
			if streamed += d.Rest(); streamed != text {
				t.Fatalf("%q came back as %q", text, streamed)
			}
		}))
	}
}

// The four bytes of a token are as the endpoint picker packs them, and the
// beginning of a text has the beginning of its tokens.
func TestPacked(t *testing.T) {
	if diff := cmp.Diff([]uint32{0x64636261, 0x65}, Packed{}.Encode(nil, "abcde")); diff != "" {
		t.Error(diff)
	}
	if got := Decode(Packed{}, []uint32{0xff80, 0xe69d}); got != "\ufffd\ufffd\ufffd\ufffd" {
		t.Errorf("got %q", got)
	}
}

func TestTemplates(t *testing.T) {
	conversation := []Message{{"system", "Be brief. "}, {"user", "Hi"}}
	for model, want := range map[string]string{
		"Qwen/Qwen3-8B": "<|im_start|>system\nBe brief. " +
			"<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
		"meta-llama/Llama-3.1": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe " +
			"brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"openai/gpt-oss-20b": "<|start|>system<|message|>Be brief. " +
			"<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant",
		"somebody's own finest": "<|im_start|>system\nBe brief. " +
			"<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
	} {
		if diff := cmp.Diff(want, TemplateFor(model).Render(conversation, "", true)); diff != "" {
			t.Errorf("%s: %s", model, diff)
		}
	}
	if got := ChatML.Render(nil, `[{"type":"function"}]`,
		false); got != "<|im_start|>system\n[{\"type\":\"function\"}]<|im_end|>\n" {
		t.Errorf("tools: %q", got)
	}
}

// Errors name the field and what was expected.
func TestTokenizerErrors(t *testing.T) {
	good := string(readFile(t, "testdata/tokenizer.json"))
	for _, c := range []struct{ from, to, want string }{
		{`"type":"BPE"`, `"type":"Unigram"`, `model.type is "Unigram"; expected BPE`},
		{`"byte_fallback":false`, `"byte_fallback":true`, "no token <0x00>, though model.byte_fallback is true"},
		{`"normalizer":null`, `"normalizer":{"type":"Replace"}`, `normalizer: Replace with pattern`},
		{`"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false`, `"type":"Whitespace"`,
			`pre_tokenizer: type "Whitespace" is not supported`},
		{`"behavior":"Isolated"`, `"behavior":"Removed"`, `Split with behavior "Removed"`},
		{`\\p{N}{1,3}|`, `(?=x)|`, "not one of the known ones"},
		{`"!":0`, `"!!!":0`, "no token for the byte 0x21"},
		{`"#":2`, `"#":1`, "has the id 1 of"},
		{`"merges":[`, `"merges":[["q","zz"],`, `model.merges[0]: "q" and "zz"`},
		{`"merges":[`, `"merges":[7,`, `a merge must be`},
		{`"merges":[`, `"merges":["qzz",`, `has no space between`},
		{`{"version"`, `{"version`, "invalid character"},
	} {
		if !strings.Contains(good, c.from) {
			t.Fatalf("the golden file has no %s", c.from)
		}
		_, err := ParseTokenizerJSON([]byte(strings.Replace(good, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected %q", c.to, err, c.want)
		}
	}
}

func FuzzTokenizerJSON(f *testing.F) {
	good := string(readFile(f, "testdata/tokenizer.json"))
	f.Add(good, "Hello, 123 world's\n\n  x")
	f.Add(string(readFile(f, "testdata/sentencepiece.json")), "x▁ y東")
	f.Add(strings.Replace(good, `\\p{N}{1,3}|`, `x*|`, 1), "xxyy")
	f.Fuzz(func(t *testing.T, file, text string) {
		b, err := ParseTokenizerJSON([]byte(file))
		if err != nil {
			return
		}
		ids := b.Encode(nil, text)
		for _, id := range ids {
			if _, known := b.text[id]; !known {
				t.Fatalf("%q has the token %d, which has no text", text, id)
			}
		}
		Decode(b, ids)
	})
}

func FuzzEncode(f *testing.F) {
	b := small(f)
	var all []*BPE
	for _, s := range []splitter{splitGPT2, splitLlama3, splitQwen, splitO200k} {
		other := *b
		other.splitters = []splitter{s}
		all = append(all, &other)
	}
	f.Add("We'll see 12345 \r\n ʰB ||<|eot_id|>\xff\xc3")
	f.Fuzz(func(t *testing.T, text string) {
		for i, b := range all {
			var back []byte
			for _, id := range b.Encode(nil, text) {
				back = b.Decode(back, id)
			}
			if string(back) != text {
				t.Fatalf("splitter %d: %q came back as %q", i, text, back)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("The wind tunnel tests a real wing in fake weather, 1234 times. ", 64)
	for name, tokenizer := range map[string]Tokenizer{"packed": Packed{}, "bpe": small(b)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var ids []uint32
			for b.Loop() {
				ids = tokenizer.Encode(ids[:0], text)
			}
		})
	}
}
