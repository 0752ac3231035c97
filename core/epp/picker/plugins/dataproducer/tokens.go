package dataproducer

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// tokenProducer is token-producer (older: tokenizer). With vllm it asks a
// render server for the prompt's token ids; else four bytes of text count as
// a token.
type tokenProducer struct {
	named
	ModelName string          `json:"modelName"`
	VLLM      *vllmParams     `json:"vllm"`
	Estimate  *parse.Estimate `json:"estimate"`
	UDS       *struct {
		Socket     string            `json:"socketFile"`
		UseTCP     bool              `json:"useTCP"`
		Tokenizers map[string]string `json:"modelTokenizerMap"`
	} `json:"udsTokenizerConfig"`
}

// vllmParams name the renderer.
type vllmParams struct {
	URL       string          `json:"url"`
	Timeout   config.Duration `json:"timeout"`
	MMTimeout config.Duration `json:"mmTimeout"`
}

const typeTokens = "token-producer"

// NewTokenProducer makes token-producer.
var NewTokenProducer = picker.Of(tokenProducer{})

// Configure implements picker.Configurer.
func (t *tokenProducer) Configure(_ *picker.Builder, name string, p picker.Params) error {
	renders, uds := t.VLLM != nil || t.ModelName != "", t.UDS != nil && t.UDS.Socket != ""
	switch {
	case t.Estimate != nil && (renders || uds), renders && uds:
		return p.Errorf("only one of 'estimate', 'vllm', or 'udsTokenizerConfig' may be set")
	case renders && t.ModelName == "":
		return p.At("modelName").Expected("the model's name")
	case uds:
		return p.At("udsTokenizerConfig").Errorf(
			"udsTokenizerConfig is not served here; use vllm, which asks a renderer over HTTP")
	case renders && t.VLLM == nil:
		t.VLLM = &vllmParams{}
	}
	if v := t.VLLM; v != nil {
		v.URL = strings.TrimSuffix(cmp.Or(v.URL, "http://localhost:8000"), "/")
		v.Timeout = cmp.Or(v.Timeout, config.Duration(5*machine.Second))
		v.MMTimeout = cmp.Or(v.MMTimeout, config.Duration(30*machine.Second))
	}
	return nil
}

// KeyRender is the key of a token-producer's question. Its answer is a
// renderer's.
const KeyRender = "render"

// EnsureTokens makes a token producer for a plug-in that counts tokens, unless
// one is declared.
func EnsureTokens(b *picker.Builder, consumer string) {
	ensure[*tokenProducer](b, typeTokens, "TokenizedPromptDataKey", consumer)
}

// ReadBody counts pictures as the parameters say, and films also as the request's
// headers do.
func (t *tokenProducer) ReadBody(r *picker.Request) {
	if t.VLLM != nil || len(r.Body.Assets) == 0 {
		return
	}
	film := filmOf(r.Headers)
	if t.Estimate != nil || film != (parse.Film{}) {
		r.Body.Reestimate(cmp.Or(t.Estimate, &parse.Estimate{}), film)
	}
}

func filmOf(h header.List) (f parse.Film) {
	positive := func(name string) float64 {
		v, err := strconv.ParseFloat(h.Get(name), 64)
		if err != nil || !(v > 0) {
			return 0
		}
		return v
	}
	f.FPS, f.Seconds = positive(picker.HeaderVideoFPS), positive(picker.HeaderVideoSeconds)
	if wide, high, ok := strings.Cut(strings.ToLower(h.Get(picker.HeaderVideoResolution)), "x"); ok {
		w, err1 := strconv.Atoi(strings.TrimSpace(wide))
		hh, err2 := strconv.Atoi(strings.TrimSpace(high))
		if err1 == nil && err2 == nil && w > 0 && hh > 0 {
			f.Width, f.Height = w, hh
		}
	}
	return f
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
		if len(r.Body.Prompts) > 0 && r.Body.Prompts[0].IsTokens() {
			return nil
		}
		path = "/v1/completions/render"
	default:
		return nil
	}
	timeout := t.VLLM.Timeout
	if r.Body.ContentParts {
		timeout = t.VLLM.MMTimeout
	}
	return []picker.Need{{Plugin: t.Name(), Key: KeyRender, Method: "POST", URL: t.VLLM.URL + path,
		Body:    func() ([]byte, error) { return parse.RenderBody(r.Body, r.Body.Raw(), t.ModelName) },
		Timeout: timeout.Time()}}
}

// ReadAnswer reads the token ids of each prompt.
func (t *tokenProducer) ReadAnswer(a *picker.Answer) {
	type prompt struct {
		TokenIDs []uint32 `json:"token_ids"`
	}
	var many []prompt
	if a.Prompts != nil {
		return
	}
	if json.Unmarshal(a.Value, &many) != nil {
		many = make([]prompt, 1)
		if json.Unmarshal(a.Value, &many[0]) != nil {
			return
		}
	}
	for _, m := range many {
		a.Prompts = append(a.Prompts, parse.TokenPrompt(m.TokenIDs))
	}
}

// Produce takes the answer. Without one the estimate stands.
func (t *tokenProducer) Produce(c *picker.Cycle) {
	a := c.Answer(t, KeyRender)
	if a == nil || a.Err != nil {
		return
	}
	n := 0
	for i := range a.Prompts {
		n += a.Prompts[i].EstimatedTokens()
	}
	if n > 0 {
		c.Request.Rendered, c.Request.Tokens = a.Prompts, n
	}
}
