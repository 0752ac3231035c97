package plugins

import (
	"encoding/json"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// tokenProducer is token-producer (older: tokenizer). With vllm it asks a
// render server for the prompt's token ids; else four bytes of text count as
// a token.
type tokenProducer struct {
	named
	ModelName string `json:"modelName"`
	VLLM      *struct {
		URL       string          `json:"url"`
		Timeout   config.Duration `json:"timeout"`
		MMTimeout config.Duration `json:"mmTimeout"`
	} `json:"vllm"`
	Estimate any `json:"estimate"`
}

const typeTokens = "token-producer"

func newTokenProducer(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	t := &tokenProducer{named: base(typeTokens, name)}
	if err := p.Decode(t); err != nil {
		return nil, err
	}
	if v := t.VLLM; v != nil {
		if v.URL == "" {
			v.URL = "http://localhost:8000"
		}
		v.URL = strings.TrimSuffix(v.URL, "/")
		if v.Timeout == 0 {
			v.Timeout = config.Duration(5 * machine.Second)
		}
		if v.MMTimeout == 0 {
			v.MMTimeout = config.Duration(30 * machine.Second)
		}
	}
	return t, nil
}

// KeyRender is the key of a token-producer's question. Its answer is a
// renderer's.
const KeyRender = "render"

// ensureTokens makes a token producer for a plug-in that counts tokens, unless
// one is declared.
func ensureTokens(b *picker.Builder, consumer string) {
	b.Late(func() error {
		for _, p := range b.Plugins() {
			if _, ok := p.(*tokenProducer); ok {
				return nil
			}
		}
		_, err := b.Ensure(typeTokens, typeTokens, "TokenizedPromptDataKey", consumer)
		return err
	})
}

// Needs asks for the prompt's tokens.
func (t *tokenProducer) Needs(_ machine.Time, r *picker.Request, _ *picker.View) []picker.Need {
	if t.VLLM == nil || r.Body == nil {
		return nil
	}
	path := ""
	switch r.Body.Kind {
	case parse.Chat, parse.Messages:
		path = "/v1/chat/completions/render"
	case parse.Completions:
		if len(r.Body.Prompts) > 0 && r.Body.Prompts[0].Tokens != nil {
			return nil
		}
		path = "/v1/completions/render"
	default:
		return nil
	}
	body, err := r.ForwardBody()
	if err != nil {
		return nil
	}
	timeout := t.VLLM.Timeout
	if r.Body.Multimodal > 0 {
		timeout = t.VLLM.MMTimeout
	}
	return []picker.Need{{Plugin: t.Name(), Key: KeyRender, Method: "POST", URL: t.VLLM.URL + path, Body: body, Timeout: timeout.Time()}}
}

// Produce takes the answer. Without one the estimate stands.
func (t *tokenProducer) Produce(c *picker.Cycle) {
	a := c.Answer(t, KeyRender)
	if a == nil || a.Err != nil {
		return
	}
	type rendered struct {
		TokenIDs []uint32 `json:"token_ids"`
	}
	var many []rendered
	if json.Unmarshal(a.Value, &many) != nil {
		var one rendered
		if json.Unmarshal(a.Value, &one) != nil {
			return
		}
		many = []rendered{one}
	}
	n := 0
	ids := make([][]uint32, 0, len(many))
	for _, m := range many {
		ids = append(ids, m.TokenIDs)
		n += len(m.TokenIDs)
	}
	if n == 0 {
		return
	}
	c.Request.PromptTokens, c.Request.Tokens = ids, n
}
