package modelserver

import (
	"github.com/windtunnel/windtunnel/core/openai"
)

const eventStream = "text/event-stream; charset=utf-8"

// openaiStream encodes streamed /v1/chat/completions and /v1/completions.
type openaiStream struct {
	o            openai.StreamOptions
	s            *openai.Stream
	prompts      [][]uint32 // token ids per prompt, where the client wants them
	n            int
	choices      int
	includeUsage bool
	last         []byte // the last chunk's text is kept back only for its extra fields
	delta        openai.Delta
}

func (e *openaiStream) contentType() string { return eventStream }

func (e *openaiStream) begin(b []byte, u openai.Usage) []byte {
	e.o.Usage = u
	e.s = openai.NewStream(e.o)
	if !e.o.Chat {
		return b
	}
	for i := range e.choices {
		b = e.s.AppendRole(b, i, e.prompt(i))
	}
	return b
}

func (e *openaiStream) prompt(choice int) []uint32 {
	if e.prompts == nil {
		return nil
	}
	return e.prompts[choice/e.n]
}

func (e *openaiStream) token(b []byte, t *token) []byte {
	d := &e.delta
	*d = openai.Delta{Index: t.choice, Text: t.text, Reason: t.done, Stop: t.stop, StopID: t.stopID, Completion: t.index + 1, Tokens: d.Tokens[:0]}
	if t.none {
		d.Completion = t.index
	}
	if e.o.ReturnTokenIDs {
		if !t.none {
			d.Tokens = append(d.Tokens, t.id)
		}
		if t.index == 0 && !e.o.Chat {
			d.Prompt = e.prompt(t.choice)
		}
	}
	return e.s.AppendDelta(b, d)
}

func (e *openaiStream) end(b []byte, u openai.Usage, kv, extra []byte) []byte {
	extra = append(kvField(kv), extra...)
	switch {
	case e.includeUsage:
		b = e.s.AppendUsageChunk(b, u, extra)
	case len(extra) > 0:
		b = e.s.AppendExtraChunk(b, extra)
	}
	return append(b, openai.Done...)
}

func (e *openaiStream) fail(b []byte, err *openai.Error) []byte {
	b = openai.AppendStreamError(b, err)
	return append(b, openai.Done...)
}

func kvField(kv []byte) []byte {
	if kv == nil {
		return nil
	}
	return append([]byte(`,"kv_transfer_params":`), kv...)
}

// openaiWhole encodes responses that are not streamed.
type openaiWhole struct {
	head    openai.Head
	prompts [][]uint32
	n       int
	tokens  bool // return token ids
	ids     []uint32
	open    int // choices opened so far
	inText  bool
}

func (e *openaiWhole) contentType() string { return jsonType }

func (e *openaiWhole) begin(b []byte, _ openai.Usage) []byte { return openai.AppendHead(b, e.head) }

func (e *openaiWhole) token(b []byte, t *token) []byte {
	if !e.inText {
		b = openai.AppendChoiceStart(b, t.choice, e.head.Chat)
		e.open, e.inText = t.choice+1, true
	}
	if !t.none {
		b = openai.AppendText(b, t.text)
		if e.tokens {
			e.ids = append(e.ids, t.id)
		}
	}
	if t.done != "" {
		b = e.closeChoice(b, &openai.Choice{Reason: t.done, Stop: t.stop, StopID: t.stopID})
	}
	return b
}

func (e *openaiWhole) closeChoice(b []byte, c *openai.Choice) []byte {
	if e.tokens {
		c.Tokens = e.ids
		if !e.head.Chat {
			c.Prompt = e.prompts[(e.open-1)/e.n]
		}
	}
	e.inText = false
	b = openai.AppendChoiceEnd(b, c, e.head.Chat)
	e.ids = e.ids[:0]
	return b
}

func (e *openaiWhole) end(b []byte, u openai.Usage, kv, extra []byte) []byte {
	t := openai.Tail{Usage: u, KVTransferParams: kv, Extra: extra}
	if e.tokens && e.head.Chat {
		t.Prompt = e.prompts[0]
	}
	return openai.AppendTail(b, &t, e.head.Chat)
}

// fail ends a response of which a part has left: the choice that is open ends
// with an error, and the error stands where the echo would.
func (e *openaiWhole) fail(b []byte, err *openai.Error) []byte {
	if e.inText {
		b = e.closeChoice(b, &openai.Choice{Reason: openai.FinishError})
	}
	extra := openai.AppendError(nil, err)
	extra[0] = ',' // {"error":…} becomes ,"error":…
	return e.end(b, openai.Usage{}, nil, extra[:len(extra)-1])
}
