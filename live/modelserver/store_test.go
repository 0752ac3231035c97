package modelserver

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// deep is what a value leads to, in bytes, itself left out: what memory says,
// and not what its owner does.
func deep(v reflect.Value) int {
	n := 0
	switch v.Kind() {
	case reflect.String:
		n = v.Len()
	case reflect.Slice:
		n = v.Cap() * int(v.Type().Elem().Size())
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				n += deep(v.Index(i))
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = int(v.Elem().Type().Size()) + deep(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += deep(v.Field(i))
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			n += int(k.Type().Size()+e.Type().Size()) + deep(k) + deep(e)
		}
	}
	return n
}

func idOf(body string) string {
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// What clients have the server keep is counted: nothing that is kept takes more
// than is said, so that the limit is one.
func TestStoreCountsWhatItKeeps(t *testing.T) {
	t.Parallel()
	o := fast()
	o.Engine.MaxModelLen = 1 << 18
	b := start(t, o)
	send := b.text
	long := strings.Repeat("x", 10_000)
	_, body := send("POST", "/v1/conversations", `{"metadata":{"a":"`+long+`"},"items":[{"role":"user","content":"`+long+`"}]}`)
	one := idOf(body)
	send("POST", "/v1/conversations/"+one, `{"metadata":{"a":"`+long+long+`"}}`)
	for i := range 30 {
		part := fmt.Sprintf(`{"role":"user","content":[{"type":"input_text","text":"%s"},{"type":"image_url","image_url":{"url":"data:%d%s"}}]}`, long, i, long)
		if status, body := send("POST", "/v1/conversations/"+one+"/items", `{"items":[`+part+`,{"type":"function_call","name":"`+long+`","arguments":"{}","call_id":"1"}]}`); status != 200 {
			t.Fatal(status, body)
		}
	}
	_, body = send("POST", "/v1/conversations", `{"items":[`+strings.TrimSuffix(strings.Repeat(`{"role":"user","content":""},`, 4000), ",")+`]}`)
	many := idOf(body)
	for i := range 10 { // small things leave nothing large behind
		send("DELETE", fmt.Sprintf("/v1/conversations/%s/items/item_%s_%d", many, many[len("conv_"):], i+1), "")
	}
	previous := ""
	for range 5 {
		status, body := send("POST", "/v1/responses", `{"input":"`+long+`","max_output_tokens":3`+previous+`}`)
		if status != 200 {
			t.Fatal(status, body)
		}
		previous = `,"previous_response_id":"` + idOf(body) + `"`
	}
	send("POST", "/v1/responses", `{"input":"`+long+`","max_output_tokens":3,"conversation":"`+one+`"}`)
	for i := range 20 { // each names a quarter of a million blocks
		send("POST", "/v1/completions", fmt.Sprintf(`{"prompt":"a","max_tokens":1,"kv_handle":"kv://127.0.0.1:1/e/%d-200000-200000"}`, i))
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if b.store.kept.Len() < 8+20-1 {
		t.Fatalf("%d things are kept", b.store.kept.Len())
	}
	for b.store.kept.Len() > 0 {
		key, v, _ := b.store.kept.Oldest()
		before := b.store.kept.Bytes()
		b.store.kept.Delete(key)
		counted, true := before-b.store.kept.Bytes(), deep(reflect.ValueOf(&v))
		if true > counted || counted > 3*true+2*storedBytes+len(key) {
			t.Errorf("%.60s: %d bytes are counted, it takes %d", key, counted, true)
		}
	}
}

// A conversation keeps what is newest, and takes no more than its share.
func TestConversationIsBounded(t *testing.T) {
	t.Parallel()
	b := start(t, fast())
	_, body := b.post("/v1/conversations", `{}`)
	id := idOf(body)
	item := `{"items":[{"role":"user","content":"` + strings.Repeat("x", maxConversationBytes/8) + `"}]}`
	last := ""
	for range 8 {
		resp, body := b.post("/v1/conversations/"+id+"/items", item)
		if resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode, body[:100])
		}
		last = body
	}
	c := b.conversation(id)
	if c == nil || c.weight > maxConversationBytes || len(c.items) == 0 || !strings.Contains(last, c.items[len(c.items)-1].ID) {
		t.Fatalf("%d items of %d bytes", len(c.items), c.weight)
	}
	resp, body := b.post("/v1/conversations", `{"items":[{"role":"user","content":"`+strings.Repeat("x", maxConversationBytes)+`"}]}`)
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(body, fmt.Sprint(maxConversationBytes)) {
		t.Errorf("%d %.100s", resp.StatusCode, body)
	}
}

// A handle names no more blocks than its tokens can fill, and none is made for
// one that does not fit.
func TestHandlesAreBounded(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	for _, handle := range []string{"kv://h:1/e/0-1048576-1", "kv://h:1/e/0-900000-900000", "kv://h:1/" + strings.Repeat("e", 1024) + "/0-1-1"} {
		if resp, body := b.post("/v1/completions", `{"prompt":"a","max_tokens":1,"kv_handle":"`+handle+`"}`); resp.StatusCode != 400 {
			t.Errorf("%.40s: %d %s", handle, resp.StatusCode, body)
		}
	}
	used := -1
	b.engine.With(func(machine.Time) { used = b.engine.Core.Engine().KVBlocksUsed() })
	if used != 0 {
		t.Errorf("%d blocks are used", used)
	}
}

// Events of long prompts are large: those that are kept for subscribers have a
// limit in bytes, and a subscriber gets all from the oldest of them on.
func TestKVFeedIsBounded(t *testing.T) {
	t.Parallel()
	var f kvFeed
	for range feedLength {
		f.add(kv.Event{Kind: kv.Stored, Tokens: make([]uint32, 8192), Hashes: make([]kv.EngineHash, 512)})
	}
	taken := 0
	for n := uint64(1); n <= f.next; n++ {
		if e, ok := f.kept.Peek(n); ok {
			taken += deep(reflect.ValueOf(&e))
		}
	}
	if taken > f.kept.Bytes() || taken > feedBytes || taken < feedBytes/2 {
		t.Errorf("%d bytes are kept, %d are counted", taken, f.kept.Bytes())
	}
	if _, _, gone := f.from(1); !gone {
		t.Error("the first is there still")
	}
	n, got := f.next-uint64(f.kept.Len())+1, 0
	for wait := (<-chan struct{})(nil); wait == nil; {
		var events []kv.Event
		var gone bool
		if events, wait, gone = f.from(n); gone || len(events) > feedAtOnce {
			t.Fatalf("%d events, gone %v", len(events), gone)
		}
		n += uint64(len(events))
		got += len(events)
	}
	if got != f.kept.Len() {
		t.Errorf("%d of %d", got, f.kept.Len())
	}
}
