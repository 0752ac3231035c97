package kvcodec

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/windtunnel/windtunnel/core/kv"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

func genEvent(t *rapid.T) kv.Event {
	e := kv.Event{Kind: rapid.SampledFrom([]kv.Kind{kv.Stored, kv.Removed, kv.Cleared}).Draw(t, "kind"),
		Group: kv.NoGroup, Medium: kv.MediumGPU}
	if e.Kind == kv.Cleared {
		return e
	}
	n := rapid.IntRange(0, 40).Draw(t, "blocks")
	for range n {
		e.Hashes = append(e.Hashes, kv.EngineHash(rapid.Uint64().Draw(t, "hash")))
	}
	e.Medium = rapid.SampledFrom([]string{"gpu", "cpu", "disk", ""}).Draw(t, "medium")
	if rapid.Bool().Draw(t, "grouped") {
		e.Group = rapid.IntRange(0, 300).Draw(t, "group")
	}
	if e.Kind == kv.Removed {
		return e
	}
	e.Parent = kv.EngineHash(rapid.Uint64().Draw(t, "parent"))
	e.Tokens = rapid.SliceOfN(rapid.Uint32(), 0, 200).Draw(t, "tokens")
	e.BlockTokens = rapid.IntRange(0, 70000).Draw(t, "size")
	e.LoRAName = rapid.StringN(0, 300, 600).Draw(t, "lora")
	if e.LoRAName != "" {
		e.LoRAID = int64(rapid.Uint32().Draw(t, "lora id"))
	}
	if rapid.Bool().Draw(t, "salted") && n > 0 {
		e.ExtraKeys = make([][]string, n)
		e.ExtraKeys[0] = []string{"salt", rapid.String().Draw(t, "extra")}
	}
	e.SpecKind = rapid.SampledFrom([]string{"", "full_attention", "mamba"}).Draw(t, "spec")
	e.SlidingWindow = rapid.SampledFrom([]int{0, 32}).Draw(t, "window")
	return e
}

// What is written in either form is read back, and a common library reads it
// too.
func TestMsgpackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := kv.Batch{At: rapid.Float64Range(0, 2e9).Draw(t, "ts"),
			DataParallelRank: rapid.IntRange(-1, 200).Draw(t, "rank")}
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			b.Events = append(b.Events, genEvent(t))
		}
		for _, form := range []Form{ArrayForm, MapForm} {
			wire := AppendBatch(nil, b, form)
			var any []any
			if err := msgpack.Unmarshal(wire, &any); err != nil || len(any) != 3 {
				t.Fatalf("form %d: msgpack library: %v, %d elements", form, err, len(any))
			}
			var d Decoder
			got, err := d.Decode(wire)
			if err != nil {
				t.Fatalf("form %d: %v", form, err)
			}
			if diff := cmp.Diff(b, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("form %d: (-written +read)\n%s", form, diff)
			}
		}
	})
}

// The forms that vLLM and its relatives write, and what is refused, with the
// sentence that says why.
func TestMsgpackForms(t *testing.T) {
	bin := append(bytes.Repeat([]byte{9}, 24), 0, 0, 1, 0, 0, 0, 0, 7)
	stored := func(hash, parent any, rest ...any) []any {
		return append([]any{"BlockStored", []any{hash}, parent, []int{1, 2}, 2}, rest...)
	}
	h := uint64(1 << 40)
	for _, c := range []struct {
		name    string
		batch   any
		lenient bool
		want    string // part of the error; "" is accepted
	}{
		{"shortest", []any{1.5, []any{stored(h, nil)}, 0}, false, ""},
		{"hash of bytes", []any{1.5, []any{stored(bin, bin)}, nil}, false, ""},
		{"signed hash", []any{1, []any{stored(int64(-1<<60), nil)}, -1}, false, ""},
		{"later fields", []any{nil, []any{stored(h, nil, 1, "GPU", "ad", nil, 0, "full_attention", nil, "new", 7)},
			nil}, false, ""},
		{"image keys", []any{1.5,
			[]any{stored(h, nil, nil, nil, nil, []any{[]any{[]any{"img", 3}, map[string]int{"x": 1}}})}, 0}, false, ""},
		{"map", []any{1.5, []any{map[string]any{"block_hashes": []any{h}, "type": "BlockRemoved", "later": 1}}, 0},
			false, ""},
		{"two elements", []any{1.5, []any{}}, false, "the batch has 2 elements, expected exactly 3"},
		{"two elements, lenient", []any{1.5, []any{}}, true, ""},
		{"a map as batch", map[string]any{"ts": 1}, false,
			"found fixmap, expected a batch [ts, events, data_parallel_rank]"},
		{"rank is text", []any{1.5, []any{}, "x"}, false, "data_parallel_rank"},
		{"small hash", []any{1.5, []any{stored(7, nil)}, 0}, false,
			"event 0 (BlockStored): block_hashes: [0]: byte 25: found positive fixint, expected a hash"},
		{"small hash, lenient", []any{1.5, []any{stored(7, nil)}, 0}, true, ""},
		{"short bytes", []any{1.5, []any{stored([]byte{1}, []byte{2, 3})}, 0}, false, ""},
		{"no bytes", []any{1.5, []any{stored([]byte{}, nil)}, 0}, false, "found an empty bin, expected a hash"},
		{"a parent of no bytes", []any{1.5, []any{stored(h, []byte{})}, 0}, false,
			"parent_block_hash: byte 34: found an empty bin"},
		{"no hashes", []any{1.5, []any{[]any{"BlockStored", []any{}, nil, []int{1, 2}, 2}}, 0}, false, ""},
		{"unknown event", []any{1.5, []any{[]any{"BlockMoved"}}, 0}, false, `unknown event "BlockMoved"`},
		{"float token", []any{1.5, []any{[]any{"BlockStored", []any{h}, nil, []any{1.5}, 1}}, 0}, false,
			"token_ids: [0]"},
		{"float size", []any{1.5, []any{[]any{"BlockStored", []any{h}, nil, []any{1}, 1.0}}, 0}, false, "block_size"},
		{"extra keys are text", []any{1.5, []any{stored(h, nil, nil, nil, nil, "x")}, 0}, false, "extra_keys"},
		{"ends early", []any{1.5, []any{[]any{"BlockStored", []any{h}}}, 0}, false, "it ends before parent_block_hash"},
		{"map without hashes", []any{1.5, []any{map[string]any{"type": "BlockRemoved"}}, 0}, false,
			"block_hashes is missing"},
		{"map without type", []any{1.5, []any{map[string]any{"x": 1}}, 0}, false, `the map has no "type"`},
	} {
		var buf bytes.Buffer
		enc := msgpack.NewEncoder(&buf)
		enc.UseCompactInts(true)
		if err := enc.Encode(c.batch); err != nil {
			t.Fatal(err)
		}
		d := Decoder{Lenient: c.lenient}
		// The library writes a uint64 in its shortest form only when asked;
		// hashes above 2^32 keep their 9 bytes either way.
		_, err := d.Decode(buf.Bytes())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestBytesHashIsItsLast8(t *testing.T) {
	for hash, want := range map[string]kv.EngineHash{"c40cffffffff0000010000000007": 1<<40 + 7, "c40107": 7,
		"c4030a0b0c": 0x0a0b0c, "c4088000000000000001": 1<<63 + 1} {
		wire, _ := hex.DecodeString("93c09192ac426c6f636b52656d6f76656491" + hash + "c0")
		var d Decoder
		b, err := d.Decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Events[0].Hashes[0]; got != want {
			t.Errorf("%s: got %x, want %x", hash, got, want)
		}
	}
}

// Limits hold before memory is taken.
func TestLimits(t *testing.T) {
	d := Decoder{Limits: Limits{Events: 1, Blocks: 2, Tokens: 3, TextBytes: 20, PayloadBytes: 200}}
	for name, b := range map[string]kv.Batch{
		"events":  {Events: []kv.Event{{Kind: kv.Cleared}, {Kind: kv.Cleared}}},
		"hashes":  {Events: []kv.Event{{Kind: kv.Removed, Hashes: make([]kv.EngineHash, 3)}}},
		"token":   {Events: []kv.Event{{Kind: kv.Stored, Tokens: make([]uint32, 4)}}},
		"a strin": {Events: []kv.Event{{Kind: kv.Stored, LoRAName: strings.Repeat("x", 21)}}},
		"message": {Events: []kv.Event{{Kind: kv.Stored, Tokens: make([]uint32, 400)}}},
	} {
		_, err := d.Decode(AppendBatch(nil, b, ArrayForm))
		if err == nil || !strings.Contains(err.Error(), "limit is") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := d.Decode([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}); err == nil {
		t.Error("an array longer than its message was taken")
	}
}

// The event of document 003, as it stands there.
const documentEvent = `{"event_type": "BLOCK_CREATED", "pod_id": "vllm-decode-pod-3",
 "block_hash": "sha256:abc123...", "block_tokens": ["Hello", "world", "!"], "num_tokens": 64,
 "timestamp": "2025-10-26T10:30:45Z", "layer_id": 0, "cache_size_bytes": 262144}`

func TestDocumentEvent(t *testing.T) {
	b, err := DecodeJSON([]byte(documentEvent), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []kv.Event{{Kind: kv.Stored, Pod: "vllm-decode-pod-3", Name: "sha256:abc123...",
		Hashes:      []kv.EngineHash{kv.Named("sha256:abc123...")},
		BlockTokens: 64, ByName: true, Medium: "gpu", Group: kv.NoGroup, At: 1761474645, BlockBytes: 262144}}
	if diff := cmp.Diff(want, b.Events); diff != "" {
		t.Fatal(diff)
	}
	for text, want := range map[string]string{
		`{}`: "event_type", `{"event_type":"BLOCK_CREATED"}`: "block_hash",
		`{"event_type":"HEARTBEAT","timestamp":"now"}`: "RFC 3339", `[]`: "no event",
		`[{"event_type":"HEARTBEAT"}] 1`:                 "follows the array",
		`{"event_type":"BLOCK_CREATED","num_tokens":-1}`: "num_tokens", ``: "no event",
		`[{"event_type":"HEARTBEAT"}`: "after event",
	} {
		if _, err := DecodeJSON([]byte(text), Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	two := documentEvent + "\n" + strings.Replace(documentEvent, "CREATED", "EVICTED", 1)
	if b, err := DecodeJSON([]byte(two), Limits{}); err != nil || len(b.Events) != 2 || b.Events[1].Kind != kv.Removed {
		t.Fatalf("two lines: %v %+v", err, b)
	}
}

// A block keeps its hash through both formats.
func TestOneHashInBothFormats(t *testing.T) {
	h := kv.EngineHash(0xfedcba9876543210)
	if got := kv.Named(h.Name()); got != h {
		t.Fatalf("got %x", got)
	}
	if got := kv.Named("sha256:" + strings.Repeat("0", 48) + "fedcba9876543210"); got != h {
		t.Fatalf("whole digest: got %x", got)
	}
	stored := kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{5, 6}, Parent: 4, Tokens: []uint32{1, 2, 3, 4},
		BlockTokens: 2, Group: kv.NoGroup, Medium: "cpu"}
	wire, err := AppendJSON(nil, kv.Batch{At: 1.5, Events: []kv.Event{stored}}, "p")
	if err != nil {
		t.Fatal(err)
	}
	b, err := DecodeJSON(wire, Limits{})
	if err != nil || len(b.Events) != 2 {
		t.Fatalf("%v in %s", err, wire)
	}
	second := b.Events[1]
	if second.Parent != 5 || second.Hashes[0] != 6 || !cmp.Equal(second.Tokens, []uint32{3, 4}) ||
		second.Medium != "cpu" || second.ByName {
		t.Fatalf("got %+v", second)
	}
}

func TestTopic(t *testing.T) {
	for text, want := range map[string]kv.Topic{
		"kv@127.0.0.2:41800@m1": {Pod: "127.0.0.2:41800", Model: "m1"},
		"kv@127.0.0.2:41800":    {Pod: "127.0.0.2:41800", Model: ""},
		"kv@a:1@m1@x":           {Pod: "a:1", Model: ""}, "kv@": {},
		"kv@a:1@org/model": {Pod: "a:1", Model: "org/model"},
	} {
		if got, err := kv.ParseTopic(text); err != nil || got != want {
			t.Errorf("%s: got %+v %v", text, got, err)
		}
	}
	long := strings.Repeat("a", kv.MaxNameBytes+1)
	for _, bad := range []string{"kv", "KV@a@b", "xx@a@b", "", "kv@" + long + "@m", "kv@a:1@" + long, "kv@\xff@m",
		"kv@a\nb@m", "kv@a@\x1b[31m"} {
		if _, err := kv.ParseTopic(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, field := range []string{"pod_id", "model", "lora_name"} {
		for _, bad := range []string{long, `a\nb`, `\u001b[31m`} {
			if _, err := DecodeJSON([]byte(`{"event_type":"HEARTBEAT","`+field+`":"`+bad+`"}`), Limits{}); err == nil ||
				!strings.Contains(err.Error(), field) {
				t.Errorf("%s %.20q: %v", field, bad, err)
			}
		}
	}
	if seq, err := kv.DecodeSequence(append(kv.EncodeSequence(7), 'x', 'x')); seq != 7 || err != nil {
		t.Errorf("sequence: %d %v", seq, err)
	}
	if _, err := kv.DecodeSequence(make([]byte, 4)); err == nil {
		t.Error("a short sequence was accepted")
	}
}

// Whatever comes in, the decoder neither panics nor hangs, and what it
// accepts can be written and read again.
func FuzzMsgpack(f *testing.F) {
	for _, form := range []Form{ArrayForm, MapForm} {
		f.Add(AppendBatch(nil, kv.Batch{At: 1.5, Events: []kv.Event{
			{Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2}, Parent: 3, Tokens: []uint32{1, 200, 70000}, BlockTokens: 2,
				LoRAName: "a", ExtraKeys: [][]string{{"s"}}, SpecKind: "mamba", SlidingWindow: 3},
			{Kind: kv.Removed, Hashes: []kv.EngineHash{1}, Medium: "cpu", Group: 1}, {Kind: kv.Cleared}}}, form), true)
	}
	f.Add([]byte{0x93, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff}, false)
	f.Add(bytes.Repeat([]byte{0x91}, 100), true)
	f.Fuzz(func(t *testing.T, wire []byte, lenient bool) {
		d := Decoder{Lenient: lenient}
		b, err := d.Decode(wire)
		if err != nil {
			return
		}
		var e Decoder
		again, err := e.Decode(AppendBatch(nil, b, ArrayForm))
		if err != nil {
			t.Fatalf("written again: %v", err)
		}
		if len(again.Events) != len(b.Events) {
			t.Fatalf("%d events became %d", len(b.Events), len(again.Events))
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(documentEvent))
	f.Add([]byte(`[{"event_type":"HEARTBEAT","num_gpu_blocks":5},{"event_type":"BLOCK_EVICTED","block_hash":"x",` +
		`"medium":"CPU"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := DecodeJSON(text, Limits{})
		if err != nil {
			return
		}
		wire, err := AppendJSON(nil, b, "p")
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeJSON(wire, Limits{})
		if err != nil || len(again.Events) != len(b.Events) {
			t.Fatalf("%v: %d events became %d in %s", err, len(b.Events), len(again.Events), wire)
		}
	})
}

func FuzzTopicAndSequence(f *testing.F) {
	f.Add("kv@127.0.0.2:8000@m", []byte{0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, topic string, seq []byte) {
		if p, err := kv.ParseTopic(topic); err == nil && p.Model != "" && p.String() != topic {
			t.Fatalf("%q came back as %q", topic, p.String())
		}
		if v, err := kv.DecodeSequence(seq); err == nil && !bytes.Equal(kv.EncodeSequence(v), seq[:8]) {
			t.Fatalf("%x came back as %x", seq, kv.EncodeSequence(v))
		}
		kv.Named(topic)
	})
}

// One block of a message with 64 of them, beside the library.
func BenchmarkDecodeStored(b *testing.B) {
	const blocks = 64
	e := kv.Event{Kind: kv.Stored, Group: kv.NoGroup, BlockTokens: 16}
	for i := range blocks {
		e.Hashes = append(e.Hashes, kv.EngineHash(1<<40+i))
		for j := range 16 {
			e.Tokens = append(e.Tokens, uint32(i*997+j*131))
		}
	}
	wire := AppendBatch(nil, kv.Batch{Events: []kv.Event{e}}, ArrayForm)
	b.Run("own", func(b *testing.B) {
		var d Decoder
		b.ReportAllocs()
		for i := 0; i < b.N; i += blocks {
			if _, err := d.Decode(wire); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("vmihailenco", func(b *testing.B) {
		type stored struct {
			Tag         string
			Hashes      []uint64
			Parent      *uint64
			Tokens      []uint32
			BlockTokens int
			LoRAID      *int64
			Medium      *string
			LoRAName    *string
		}
		var batch struct {
			At     float64
			Events []stored
			Rank   *int
		}
		d := msgpack.NewDecoder(nil)
		b.ReportAllocs()
		for i := 0; i < b.N; i += blocks {
			batch.Events = batch.Events[:0]
			d.Reset(bytes.NewReader(wire))
			if err := d.Decode(&batch); err != nil || len(batch.Events[0].Tokens) != 16*blocks {
				b.Fatal(err)
			}
		}
	})
}

// SGLang's events are vLLM's arrays without groups; nil stands for nothing.
func TestSGLang(t *testing.T) {
	d := Decoder{SGLang: true}
	str := func(s string) string { return string(rune(0xa0|len(s))) + s }
	bytesOf := func(s string) []byte { // the runes are bytes
		var b []byte
		for _, r := range s {
			b = append(b, byte(r))
		}
		return b
	}
	batch := func(event string) []byte { return bytesOf("\u0093\u00c0\u0091" + event + "\u00c0") }
	hash := "\u0091\u00cf\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0007"
	for name, c := range map[string]struct{ event, want string }{
		"short": {"\u0095" + str("BlockStored") + hash + "\u00c0\u0091\u0005\u0001",
			"{Kind:BlockStored Hashes:[7] Tokens:[5] Medium:gpu}"},
		"nil tokens": {"\u0097" + str("BlockStored") + hash + "\u00c0\u00c0\u00c0\u00c0" + str("CPU"),
			"{Kind:BlockStored Hashes:[7] Tokens:[] Medium:cpu}"},
		"removed": {"\u0093" + str("BlockRemoved") + hash + "\u00c0",
			"{Kind:BlockRemoved Hashes:[7] Tokens:[] Medium:gpu}"},
		"removed of group": {"\u0094" + str("BlockRemoved") + hash + "\u00c0\u0001",
			"it has 3 fields, SGLang's has at most 2"},
		"a map":     {"\u0081" + str("type") + str("AllBlocksCleared"), "an event"},
		"too short": {"\u0093" + str("BlockStored") + hash + "\u00c0", "it ends before token_ids"},
	} {
		b, err := d.Decode(batch(c.event))
		got := fmt.Sprint(err)
		if err == nil {
			e := b.Events[0]
			got = fmt.Sprintf("{Kind:%s Hashes:%v Tokens:%v Medium:%s}", e.Kind, e.Hashes, e.Tokens, e.Medium)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
