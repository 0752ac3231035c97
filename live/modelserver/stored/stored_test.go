package stored

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// deep returns the size in bytes of everything that a value refers to, without the value itself: the memory's own
// measure, not its owner's.
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

// api is a store behind its routes.
func api(t *testing.T) (*Store, func(method, path, body string) (int, string)) {
	s, mux := New(64<<20, true), http.NewServeMux()
	s.Routes(mux)
	return s, func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
}

// What clients have the server keep is counted: nothing that is kept takes more
// than is said, so that the limit is one.
func TestStoreCountsWhatItKeeps(t *testing.T) {
	t.Parallel()
	s, send := api(t)
	long := strings.Repeat("x", 10_000)
	_, body := send("POST", "/v1/conversations",
		`{"metadata":{"a":"`+long+`"},"items":[{"role":"user","content":"`+long+`"}]}`)
	one := idOf(body)
	send("POST", "/v1/conversations/"+one, `{"metadata":{"a":"`+long+long+`"}}`)
	for i := range 30 {
		part := fmt.Sprintf(`{"role":"user","content":[{"type":"input_text","text":"%s"},{"type":"image_url",`+
			`"image_url":{"url":"data:%d%s"}}]}`, long, i, long)
		if status, body := send("POST", "/v1/conversations/"+one+"/items",
			`{"items":[`+part+`,{"type":"function_call","name":"`+
				long+`","arguments":"{}","call_id":"1"}]}`); status != 200 {
			t.Fatal(status, body)
		}
	}
	_, body = send("POST", "/v1/conversations",
		`{"items":[`+strings.TrimSuffix(strings.Repeat(`{"role":"user","content":""},`, 4000), ",")+`]}`)
	many := idOf(body)
	for i := range 10 { // small things leave nothing large behind
		send("DELETE", fmt.Sprintf("/v1/conversations/%s/items/item_%s_%d", many, many[len("conv_"):], i+1), "")
	}
	var chat []openai.Message
	for i := range 5 {
		chat = append(chat, openai.Message{Role: "user", Content: openai.Content{Text: strings.Clone(long)}})
		s.KeepResponse(fmt.Sprint("resp_", i),
			&modelserver.StoredResponse{Body: []byte(long), Messages: slices.Clone(chat)})
	}
	for i := range 20 {
		s.Fetched(fmt.Sprintf("kv://127.0.0.1:1/e/%d-200000-200000", i))
	}
	if s.kept.Len() != 2+5+20 {
		t.Fatalf("%d things are kept", s.kept.Len())
	}
	for s.kept.Len() > 0 {
		key, v, _ := s.kept.Oldest()
		before := s.kept.Bytes()
		s.kept.Delete(key)
		counted, true := before-s.kept.Bytes(), deep(reflect.ValueOf(&v))
		if true > counted || counted > 3*true+2*storedBytes+len(key) {
			t.Errorf("%.60s: %d bytes are counted, it takes %d", key, counted, true)
		}
	}
}

// A conversation keeps its newest items, within its share of the memory.
func TestConversationIsBounded(t *testing.T) {
	t.Parallel()
	s, send := api(t)
	_, body := send("POST", "/v1/conversations", `{}`)
	id := idOf(body)
	item := `{"items":[{"role":"user","content":"` + strings.Repeat("x", maxConversationBytes/8) + `"}]}`
	last := ""
	for range 8 {
		status, body := send("POST", "/v1/conversations/"+id+"/items", item)
		if status != 200 {
			t.Fatal(status, body[:100])
		}
		last = body
	}
	c := s.conversation(id)
	if c == nil || c.weight > maxConversationBytes || len(c.items) == 0 ||
		!strings.Contains(last, c.items[len(c.items)-1].ID) {
		t.Fatalf("%d items of %d bytes", len(c.items), c.weight)
	}
	status, body := send("POST", "/v1/conversations",
		`{"items":[{"role":"user","content":"`+strings.Repeat("x", maxConversationBytes)+`"}]}`)
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, fmt.Sprint(maxConversationBytes)) {
		t.Errorf("%d %.100s", status, body)
	}
}
