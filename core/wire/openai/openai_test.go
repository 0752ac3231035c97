package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// Whatever the fast reader reads, encoding/json reads the same.
func checkFast(t interface{ Fatalf(string, ...any) }, body []byte) {
	var fast Chat
	if !fastChat(body, &fast, nil) {
		return
	}
	var slow Chat
	if err := json.Unmarshal(body, &slow); err != nil {
		t.Fatalf("%s: read, but %v", body, err)
	}
	if d := cmp.Diff(slow, fast); d != "" {
		t.Fatalf("%s: %s", body, d)
	}
}

func TestFastChat(t *testing.T) {
	common := `{"model":"m","messages":[{"role":"user","content":"Hé \"you\"\n"},{"role":"assistant","content":""}],` +
		`"max_tokens":10,"stream":true,"stream_options":{"include_usage":true},"temperature":0.7}`
	if !fastChat([]byte(common), &Chat{}, nil) {
		t.Fatal("the common request is not read fast")
	}
	checkFast(t, []byte(common))
	for _, body := range []string{`{}`, ` { "model" : "m" } `, `{"model":"m","model":"n"}`, `{"max_tokens":007}`,
		`{"max_tokens":1.5}`, `{"temperature":1.}`,
		`{"Model":"m"}`, `{"messages":[]}`, `{"messages":[{}]}`, `{"model":"` + "\xff" + `"}`, `{"n":1}x`,
		`{"response_format":{"type":"json_schema","x":["}{",{}]} }`, `{"response_format":null}`,
		`{"kv_transfer_params":{"remote_block_ids":[1,2]},"max_tokens":1}`, `{"response_format":{"a":}}`,
		`{"response_format":"{"}`, `{"response_format":{"a":"\\"}`, `{"n":1,}`,
		`{"max_tokens":99999999999999999999}`} {
		checkFast(t, []byte(body))
	}
}

func FuzzFastChat(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"x\u00e9"}],"n":2,"temperature":0.5,` +
		`"stream_options":{},"response_format":{"type":"text"}}`))
	f.Fuzz(func(t *testing.T, body []byte) { checkFast(t, body) })
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],` +
		`"tools":[{"function":{"name":"f"}}],"tool_choice":"auto"}`))
	f.Add([]byte(`{"prompt":[[1,2],[3]],"stop":["x"],"logprobs":3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (any, *Error){
			func(b []byte) (any, *Error) { c := new(Chat); return c, c.Parse(b) },
			func(b []byte) (any, *Error) { return ParseCompletion(b) },
		} {
			if _, bad := parse(body); bad != nil && (bad.Status != 400 || !json.Valid(AppendError(nil, bad))) {
				t.Fatalf("%+v", bad)
			}
		}
	})
}

// Any string becomes a JSON string that reads back as itself.
func TestAppendString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(),
			rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })).Draw(
			t, "s")
		var back string
		if err := json.Unmarshal(AppendString(nil, s), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") &&
			back != replaced(s) {
			t.Fatalf("%q became %q: %v", s, back, err)
		}
	})
}

// replaced has U+FFFD for every invalid byte, as encoding/json does.
func replaced(s string) string {
	var b bytes.Buffer
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

// Every chunk and every whole response is JSON, whatever is said.
func TestChunksAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := StreamOptions{ID: rapid.String().Draw(t, "id"), Model: rapid.String().Draw(t, "model"),
			Chat:            rapid.Bool().Draw(t, "chat"),
			ContinuousUsage: rapid.Bool().Draw(t, "usage"), ReturnTokenIDs: rapid.Bool().Draw(t, "ids")}
		s := NewStream(o)
		d := Delta{Index: rapid.IntRange(0, 9).Draw(t, "index"), Text: rapid.String().Draw(t, "text"),
			Stop: rapid.String().Draw(t, "stop"), Tokens: []uint32{1, 2},
			Reason: rapid.SampledFrom([]FinishReason{"", FinishStop, FinishLength}).Draw(t, "reason"),
			Extra:  []byte(`,"x":1`), ChoiceExtra: []byte(`,"y":{}`)}
		for _, chunk := range [][]byte{s.AppendDelta(nil, &d), s.AppendRole(nil, 0, []uint32{3}),
			s.AppendUsageChunk(nil, Usage{Details: true}, nil), s.AppendExtraChunk(nil, []byte(`,"z":2`))} {
			data, ok := bytes.CutPrefix(chunk, []byte("data: "))
			if !ok || !bytes.HasSuffix(data, []byte("\n\n")) || !json.Valid(data) {
				t.Fatalf("%s", chunk)
			}
		}
		b := AppendHead(nil, Head{ID: o.ID, Model: o.Model, Chat: o.Chat})
		for i := range 2 {
			b = AppendText(AppendChoiceStart(b, i, o.Chat), d.Text)
			b = AppendChoiceEnd(b, &Choice{Reason: FinishStop, Stop: d.Stop}, o.Chat)
		}
		b = AppendTail(b, &Tail{Extra: d.Extra}, o.Chat)
		if !json.Valid(b) {
			t.Fatalf("%s", b)
		}
	})
}

// The usual request and the usual chunk, beside the library that stands for
// everything else.
func BenchmarkParseChat(b *testing.B) {
	body := []byte(`{"model":"windtunnel","messages":[{"role":"user","content":"Say something about wind."}],` +
		`"max_tokens":16,"stream":false}`)
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if bad := new(Chat).Parse(body); bad != nil {
				b.Fatal(bad)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(body, &Chat{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		s := NewStream(StreamOptions{ID: "chatcmpl-0123456789abcdef", Model: "windtunnel", Chat: true})
		d := Delta{Text: " word"}
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			buf = s.AppendDelta(buf[:0], &d)
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		type delta struct {
			Content string `json:"content"`
		}
		type choice struct {
			Index    int     `json:"index"`
			Delta    delta   `json:"delta"`
			Logprobs *string `json:"logprobs"`
			Reason   *string `json:"finish_reason"`
			TokenIDs []int   `json:"token_ids"`
		}
		c := struct {
			ID      string   `json:"id"`
			Object  string   `json:"object"`
			Created int64    `json:"created"`
			Model   string   `json:"model"`
			Choices []choice `json:"choices"`
		}{"chatcmpl-0123456789abcdef", "chat.completion.chunk", 0, "windtunnel", []choice{{Delta: delta{" word"}}}}
		var buf bytes.Buffer
		e := json.NewEncoder(&buf)
		b.ReportAllocs()
		for b.Loop() {
			buf.Reset()
			if err := e.Encode(&c); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// An error about a wrong type has the field's name as the client wrote it.
func TestDecodeNamesFields(t *testing.T) {
	err := Decode([]byte(`{"model":"m","stream":"yes"}`), &Chat{})
	if err == nil || err.Param != "stream" || !strings.HasPrefix(err.Message, "stream: expected true or false") {
		t.Fatalf("%+v", err)
	}
	err = Decode([]byte(`{"stream_options":{"include_usage":1}}`), &Chat{})
	if err == nil || err.Param != "stream_options.include_usage" {
		t.Fatalf("%+v", err)
	}
}
