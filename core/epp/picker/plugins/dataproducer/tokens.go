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
	Estimate  *estimateParams `json:"estimate"`
	UDS       *struct {
		Socket     string            `json:"socketFile"`
		UseTCP     bool              `json:"useTCP"`
		Tokenizers map[string]string `json:"modelTokenizerMap"`
	} `json:"udsTokenizerConfig"`

	estimate parse.Estimate
}

// vllmParams name the renderer.
type vllmParams struct {
	URL       string          `json:"url"`
	Timeout   config.Duration `json:"timeout"`
	MMTimeout config.Duration `json:"mmTimeout"`
}

// estimateParams tune what pictures and videos count for.
type estimateParams struct {
	Image *struct {
		Mode       string          `json:"mode" oneof:",dynamic,static"`
		Resolution *resolution     `json:"defaultResolution"`
		Static     *staticParams   `json:"static"`
		Dynamic    *dynamicFactors `json:"dynamic"`
	} `json:"image"`
	Video *struct {
		Resolution     *resolution `json:"defaultResolution"`
		Duration       float64     `json:"defaultDuration"`
		TokensPerFrame *struct {
			Mode   string `json:"mode" oneof:",dynamic,static"`
			Static *struct {
				Tokens int `json:"numTokensPerFrame"`
			} `json:"static"`
			Dynamic *dynamicFactors `json:"dynamic"`
		} `json:"tokensPerFrame"`
		Frames *struct {
			Mode    string `json:"mode" oneof:",sampled,strided"`
			Min     int    `json:"minFrames"`
			Max     int    `json:"maxFrames"`
			Sampled *struct {
				FPS      float64 `json:"sampleFPS"`
				Temporal int     `json:"temporalPatchSize"`
			} `json:"sampled"`
			Strided *struct {
				Stride    int     `json:"frameStride"`
				SourceFPS float64 `json:"defaultSourceFPS"`
			} `json:"strided"`
		} `json:"frames"`
		MaxTokens int `json:"maxVideoTokens"`
	} `json:"video"`
}

type resolution struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

type staticParams struct {
	Token int `json:"staticToken"`
}

type dynamicFactors struct {
	Factor int `json:"factor"`
}

// table returns the estimate that the parameters say.
func (e *estimateParams) table() (t parse.Estimate) {
	if e == nil {
		return t
	}
	if i := e.Image; i != nil {
		p := &t.Picture
		p.Static = i.Mode == "static"
		if i.Resolution != nil {
			p.Width, p.Height = i.Resolution.Width, i.Resolution.Height
		}
		if i.Static != nil {
			p.Tokens = i.Static.Token
		}
		if i.Dynamic != nil {
			p.Factor = i.Dynamic.Factor
		}
	}
	v := e.Video
	if v == nil {
		return t
	}
	f := &t.Film
	f.Seconds, f.MaxTokens = v.Duration, v.MaxTokens
	if v.Resolution != nil {
		f.Width, f.Height = v.Resolution.Width, v.Resolution.Height
	}
	if per := v.TokensPerFrame; per != nil {
		f.Static = per.Mode == "static"
		if per.Static != nil {
			f.Tokens = per.Static.Tokens
		}
		if per.Dynamic != nil {
			f.Factor = per.Dynamic.Factor
		}
	}
	if fr := v.Frames; fr != nil {
		f.Strided, f.Min, f.Max = fr.Mode == "strided", fr.Min, fr.Max
		if fr.Sampled != nil {
			f.SampleFPS, f.Temporal = fr.Sampled.FPS, fr.Sampled.Temporal
		}
		if fr.Strided != nil {
			f.Stride, f.FPS = fr.Strided.Stride, fr.Strided.SourceFPS
		}
	}
	return t
}

const typeTokens = "token-producer"

// NewTokenProducer makes token-producer.
var NewTokenProducer = picker.Of(tokenProducer{})

// Configure implements picker.Configurer.
func (t *tokenProducer) Configure(_ *picker.Builder, name string, p picker.Params) error {
	t.estimate = t.Estimate.table()
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
		r.Body.Reestimate(&t.estimate, film)
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
