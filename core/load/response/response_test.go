package response

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
)

func TestOutcomes(t *testing.T) {
	const sse, js = "text/event-stream; charset=utf-8", "application/json"
	tok := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	for name, c := range map[string]struct {
		contentType, body string
		status            int
		known             bool
		want              record.Outcome
		tokens            int
	}{
		"stream": {sse, tok + tok + "data: [DONE]\n\n", 200, false, record.Completed, 2},
		"held stream": {sse, tok + "data: {\"choices\":[],\"metadata\":\"m\"}\r\n\r\ndata: [DONE]\r\n\r\n", 200,
			true, record.Completed, 1},
		"no echo":    {sse, tok + "data: [DONE]\n\n", 200, true, record.Violated, 1},
		"other echo": {sse, "data: {\"metadata\":\"x\"}\n\ndata: [DONE]\n\n", 200, true, record.Violated, 0},
		"carriage returns": {sse, "data: {\"choices\":[{\"text\":\"a\"}]}\r\rdata: [DONE]\r\r", 200, false,
			record.Completed, 1},
		"data in two lines": {sse, ": alive\n\ndata: {\"choices\":\ndata: [{\"text\":\"a\"}]}\n\ndata: [DONE]", 200,
			false, record.Completed, 1},
		"cut stream": {sse, tok, 200, false, record.Broken, 1},
		"error in stream": {sse, tok + "data: {\"error\":{\"message\":\"oops\",\"type\":\"x\"}}\n\n", 200, false,
			record.ServerError, 1},
		"violation": {sse,
			tok + "data: {\"error\":{\"message\":\"v\",\"type\":\"HeldRequestViolation\"}}\n\ndata: [DONE]\n\n", 200,
			true, record.Violated, 1},
		"violation as 400": {js, `{"error":{"message":"v","type":"HeldRequestViolation"}}`, 400, true, record.Violated,
			0},
		"tool calls": {sse,
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n", 200, false, record.Completed, 1},
		"json": {js,
			`{"choices":[{"message":{"content":"hi"}}],"usage":{"completion_tokens":7},"metadata":"m"}`, 200, true,
			record.Completed, 7},
		"held response": {js, `{"object":"response","usage":{"output_tokens":3},"metadata":{"a":"b"},"held_metadata":"m"}`, 200,
			true, record.Completed, 3},
		"cut json":          {js, `{"choices":[{"mess`, 200, false, record.Broken, 0},
		"empty 200":         {js, ``, 200, false, record.Broken, 0},
		"404":               {js, `{"error":{"message":"no","type":"NotFoundError"}}`, 404, true, record.Refused, 0},
		"503 in plain text": {"text/plain", `no healthy upstream`, 503, true, record.Unavailable, 0},
		"messages": {js,
			`{"type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":9,"output_tokens":3},` +
				`"metadata":"m"}`, 200, true, record.Completed, 3},
		"messages' stream": {sse,
			"event: message_start\ndata: " +
				"{\"type\":\"message_start\",\"message\":{\"usage\":{\"output_tokens\":0}}}\n\ndata: " +
				"{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n" +
				"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\ndata: {\"type\":\"message_stop\",\"metadata\":\"m\"}\n\n", 200, true, record.Completed, 2},
		"messages' stream that is cut": {sse,
			"data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\n", 200, false, record.Broken, 1},
		"messages' error": {js,
			`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, 400, true, record.Refused, 0},
		"messages' error in a stream": {sse,
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"no\"}}\n\n", 200,
			false, record.ServerError, 0},
		"response": {js,
			`{"object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],` +
				`"usage":{"output_tokens":4},"error":null}`, 200, false, record.Completed, 4},
		"response's stream": {sse,
			"data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\ndata: " +
				"{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\ndata: " +
				"{\"type\":\"response.completed\",\"response\":{\"usage\":{\"output_tokens\":1}}}\n\n", 200, false,
			record.Completed, 1},
		"response's stream that is cut": {sse, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n",
			200, false, record.Broken, 1},
		"response's stream that failed": {sse,
			"data: {\"type\":\"response.failed\",\"response\":{\"usage\":null},\"error\":{\"message\":\"no\",\"type\":\"x\"}}\n\n", 200, false, record.ServerError, 0},
		"client's own metadata": {js, `{"choices":[],"metadata":{"a":1}}`, 200, false, record.Completed, 0},
	} {
		for _, step := range []int{1, 3, 1 << 20} {
			r := NewReader(c.contentType)
			for rest := c.body; rest != ""; {
				n := min(step, len(rest))
				_, _ = r.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			r.Close()
			f := r.Facts(c.status)
			f.Want, f.Known = "m", c.known
			got, reason := f.Outcome()
			if got != c.want || r.Tokens() != c.tokens || (reason == "") != (got == record.Completed) {
				t.Errorf("%s, %d at a time: got %s (%q), %d tokens; want %s, %d", name, step, got, reason, r.Tokens(),
					c.want, c.tokens)
			}
		}
	}
}

// Facts that did not come as bytes give the same result.
func TestFacts(t *testing.T) {
	t.Parallel()
	whole := Facts{Status: 200, Tokens: 3, Whole: true, Bytes: -1}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   record.Outcome
	}{
		"whole": {func(*Facts) {}, record.Completed},
		"a violation inside a 200": {
			func(f *Facts) { f.Error = &Error{Message: "part 2", Type: "HeldRequestViolation"} }, record.Violated},
		"a violation before tokens": {
			func(f *Facts) { f.Status, f.Error = 400, &Error{Message: "part 2", Type: "HeldRequestViolation"} },
			record.Violated},
		"another error inside": {
			func(f *Facts) { f.Error = &Error{Message: "crashed", Type: "InternalServerError"} }, record.ServerError},
		"nothing came": {func(f *Facts) { f.Whole, f.Bytes = false, 0 }, record.Broken},
		"not all came": {func(f *Facts) { f.Whole = false }, record.Broken},
		"the echo": {func(f *Facts) { f.Want, f.Known, f.Metadata, f.Echoed = "m", true, "m", true },
			record.Completed},
		"no echo":  {func(f *Facts) { f.Want, f.Known = "m", true }, record.Violated},
		"too many": {func(f *Facts) { f.Status, f.Text = 429, "later" }, record.Overloaded},
	} {
		f := whole
		c.change(&f)
		var last []record.Step
		outcome, details := f.Ended(func(s record.Step, _ ...record.Detail) { last = append(last, s) })
		if outcome != c.want || (len(last) == 1) != (c.want == record.Completed) {
			t.Errorf("%s: %s %v, recorded %v; expected %s", name, outcome, details, last, c.want)
		}
	}
}

// Answers by gRPC are read message by message, and end with their status.
func TestCalls(t *testing.T) {
	t.Parallel()
	chunk := vllmgrpc.AppendMessage(nil,
		&vllmgrpc.GenerateResponse{
			Response: &vllmgrpc.GenerateResponse_Chunk{
				Chunk: &vllmgrpc.GenerateStreamChunk{TokenIds: []uint32{1}, PromptTokens: 9, CompletionTokens: 1}}})
	end := vllmgrpc.AppendMessage(nil,
		&vllmgrpc.GenerateResponse{
			Response: &vllmgrpc.GenerateResponse_Complete{
				Complete: &vllmgrpc.GenerateComplete{OutputIds: []uint32{1}, CompletionTokens: 1}}})
	whole := vllmgrpc.AppendMessage(nil,
		&vllmgrpc.GenerateResponse{
			Response: &vllmgrpc.GenerateResponse_Complete{
				Complete: &vllmgrpc.GenerateComplete{OutputIds: []uint32{1, 2, 3}, CompletionTokens: 3}}})
	embedding := vllmgrpc.AppendMessage(nil,
		&vllmgrpc.EmbedResponse{Embedding: []float32{1, 2}, PromptTokens: 3, EmbeddingDim: 2})
	for name, c := range map[string]struct {
		body   []byte
		code   vllmgrpc.Code
		known  bool
		want   record.Outcome
		tokens int
	}{
		"stream":       {slices.Concat(chunk, chunk, end), 0, true, record.Completed, 2},
		"whole":        {whole, 0, true, record.Completed, 3},
		"embedding":    {embedding, 0, true, record.Completed, 0},
		"no status":    {slices.Concat(chunk, end), 0, false, record.Broken, 1},
		"cut":          {slices.Concat(chunk, end[:4]), 0, true, record.Broken, 1},
		"nothing":      {nil, 0, true, record.Broken, 0},
		"no messages":  {[]byte("\x00\x00\x00\x00\x01\xff"), 0, true, record.Broken, 0},
		"refused":      {nil, vllmgrpc.InvalidArgument, true, record.Refused, 0},
		"fails within": {chunk, vllmgrpc.Internal, true, record.ServerError, 1},
	} {
		for _, step := range []int{1, 3, 1 << 20} {
			r := NewReader(vllmgrpc.ContentType)
			for p := range slices.Chunk(c.body, step) {
				_, _ = r.Write(p)
			}
			r.Close()
			f := r.Facts(200)
			f.Call(c.code, "why", c.known)
			got, reason := f.Outcome()
			if got != c.want || f.Tokens != c.tokens || (reason == "") != (got == record.Completed) {
				t.Errorf("%s, %d at a time: got %s (%q), %d tokens; want %s, %d", name, step, got, reason, f.Tokens,
					c.want, c.tokens)
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add("text/event-stream", []byte("data: {\"choices\":[{\"text\":\"x\"}]}\n\n"))
	f.Add(vllmgrpc.ContentType, []byte("\x00\x00\x00\x00\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		read := func(parts ...[]byte) Facts {
			r := NewReader(contentType)
			for _, p := range parts {
				if n, err := r.Write(p); n != len(p) || err != nil {
					t.Fatalf("%d of %d bytes: %v", n, len(p), err)
				}
			}
			r.Close()
			return r.Facts(200)
		}
		whole, cut := read(body), read(body[:len(body)/2], body[len(body)/2:])
		if d := cmp.Diff(whole, cut); d != "" {
			t.Errorf("whole (-), cut (+): %s", d)
		}
		if outcome, _ := whole.Outcome(); (outcome == record.Completed) != (whole.Whole && whole.Error == nil) {
			t.Errorf("%v of %+v", outcome, whole)
		}
	})
}

// A content of parts is read for its texts.
func TestParts(t *testing.T) {
	r := NewReader("application/json")
	r.Keep()
	_, _ = r.Write([]byte(`{"choices":[{"message":{"content":[{"type":"text","text":"a "},{"type":"image_url",` +
		`"image_url":{"url":"data:,x"}},{"type":"text","text":"b"}]}}],"usage":{"completion_tokens":2}}`))
	r.Close()
	f := r.Facts(200)
	if outcome, reason := f.Outcome(); outcome != record.Completed || r.Tokens() != 2 || r.Text() != "a b" {
		t.Errorf("%s %s, %d tokens, %q", outcome, reason, r.Tokens(), r.Text())
	}
}
