package virtual

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/held"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/scenario"
)

// The answer of a model server: the words that a live one says to the same
// request. All of them are written out only where somebody reads them again
// (conversations and sessions); a million requests need no text.

// words are a piece of the answer's text.
func (r *request) words(from, to int) string {
	if from > 0 && !r.w.verbose {
		return ""
	}
	return r.w.voc.Text(tokens.Answer(r.w.draws.Seed, r.ID), from, to)
}

// firstToken is the answer's first word.
func (r *request) firstToken() string { return r.words(0, 1) }

// beginning is what leaves with the first token; nothing where the answer is
// sent whole.
func (r *request) beginning() []byte {
	switch {
	case r.asks().stream:
		return chunk(nil, r.firstToken(), "", nil)
	case r.session.Held():
		return openai.AppendString([]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":`), r.firstToken())
	}
	return nil
}

// chunk is one server-sent event with some text of the answer.
func chunk(b []byte, text, finish string, extra []byte) []byte {
	b = append(b, `data: {"choices":[{"index":0,"delta":{"content":`...)
	b = openai.AppendString(b, text)
	b = append(b, '}')
	if finish != "" {
		b = append(append(append(b, `,"finish_reason":"`...), finish...), '"')
	}
	b = append(b, "}]"...)
	return append(append(b, extra...), "}\n\n"...)
}

// ending is the rest of the answer, with the metadata of a held request.
func (r *request) ending(echo string) []byte {
	var extra []byte
	if r.session.Held() {
		extra = openai.AppendString([]byte(`,"`+held.EchoField+`":`), echo)
	}
	a := r.asks()
	if a.stream {
		return append(chunk(nil, r.words(1, r.tokens), r.reason, extra), "data: [DONE]\n\n"...)
	}
	var b []byte
	if r.session.Held() { // the beginning is out, up to the first word
		b = append(b, `}}]`...)
	} else {
		b = openai.AppendString([]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":`), r.words(0, r.tokens))
		b = append(b, `},"finish_reason":"`+r.reason+`"`...)
		if a.document && r.seq.Hold != nil {
			b = openai.AppendString(append(b, `,"kv_metadata":{"session_id":`...), a.session)
			b = openai.AppendString(append(b, `,"kv_handle":`...), handleOf(r.server, r.seq.Hold))
			b = strconv.AppendInt(append(b, `,"tokens_processed":`...), int64(len(a.prompt)), 10)
			b = append(b, '}')
		}
		b = append(b, "}]"...)
	}
	b = r.usage(b)
	if r.seq.Hold != nil && a.hold && !a.document && (a.key == "" || a.answers) {
		b = append(b, `,"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,"remote_block_ids":`...)
		b = fmt.Appendf(b, `%s,"remote_host":%q,"remote_port":%d,"remote_engine_id":%q}`, strings.Join(strings.Fields(fmt.Sprint(r.seq.Hold.Blocks.Numbers())), ","), r.server.host(), scenario.SideChannelPort, r.server.core.Config().EngineID)
	}
	return append(append(b, extra...), '}')
}

func (r *request) usage(b []byte) []byte {
	prompt := len(r.asks().prompt)
	for _, f := range []struct {
		name string
		n    int
	}{{`,"usage":{"prompt_tokens":`, prompt}, {`,"completion_tokens":`, r.tokens}, {`,"total_tokens":`, prompt + r.tokens}, {`,"prompt_tokens_details":{"cached_tokens":`, r.cached}} {
		b = strconv.AppendInt(append(b, f.name...), int64(f.n), 10)
	}
	return append(b, "}}"...)
}
