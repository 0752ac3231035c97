package plugins_test

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// A renderer has longer for content that comes as a list of parts, as there may
// be pictures in it; the list need not hold any.
func TestRenderersTimeout(t *testing.T) {
	cfg, err := config.Read("epp.yaml",
		[]byte("plugins:\n- {type: token-producer, parameters: {modelName: m, vllm: {timeout: 1s, mmTimeout: 7s}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	for _, test := range []struct {
		path, body string
		want       machine.Time
	}{
		{"/v1/completions", `{"model": "m", "prompt": ["a", "b"]}`, 1},
		{chat, `{"model": "m", "messages": [{"role": "user", "content": "a"}]}`, 1},
		{chat, `{"model": "m", "messages": [{"role": "user", "content": []}]}`, 1},
		{chat, `{"model": "m", "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": ` +
			`"text", "text": "a"}]}]}`, 7},
		{chat, `{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ` +
			`"http://x"}}]}]}`, 7},
		{messages, `{"model": "m", "messages": [{"role": "user", "content": "a"}]}`, 1},
		// rendered as a text
		{messages, `{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}`, 1},
		{messages, `{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": ` +
			`"text", "text": "b"}]}]}`, 7},
		{messages, `{"model": "m", "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": ` +
			`"url", "url": "http://x"}}]}]}`, 7},
	} {
		r, fault := p.NewRequest(header.Of(":method", "POST", ":path", test.path), []byte(test.body), true, 1)
		if fault != nil {
			t.Fatal(fault)
		}
		needs, fault := p.Prepare(0, r)
		if fault != nil || len(needs) != 1 || needs[0].Timeout != test.want*machine.Second {
			t.Errorf("%s: %+v %v, expected %d s", test.body, needs, fault, test.want)
		}
	}
}

func TestEstimatesOfPicturesAndFilms(t *testing.T) {
	const body = `{"model": "m", "messages": [{"role": "user", "content": [
		{"type": "image_url", "image_url": {"url": "http://x"}}, {"type": "video_url", "video_url": {"url": "http://y"}}]}]}`
	for _, test := range []struct {
		estimate      string
		picture, film int
	}{
		{"{}", 225, 4500},
		{"{image: null, video: null}", 225, 4500},
		{"{image: {mode: static, static: {staticToken: 7}}, video: {defaultDuration: 4, maxVideoTokens: 20, " +
			"tokensPerFrame: {mode: static, static: {numTokensPerFrame: 3}}, " +
			"frames: {mode: strided, strided: {frameStride: 5, defaultSourceFPS: 10}}}}", 7, 20},
		{"{image: {defaultResolution: {width: 100, height: 50}, dynamic: {factor: 100}}, video: {defaultDuration: 4, " +
			"defaultResolution: {width: 10, height: 10}, tokensPerFrame: {dynamic: {factor: 10}}, " +
			"frames: {maxFrames: 11, sampled: {sampleFPS: 3, temporalPatchSize: 2}}}}", 50, 50},
	} {
		cfg, err := config.Read("epp.yaml",
			[]byte("plugins:\n- {type: token-producer, parameters: {estimate: "+test.estimate+"}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, fault := p.NewRequest(header.Of(":method", "POST", ":path", "/v1/chat/completions"), []byte(body), true, 1)
		if fault != nil {
			t.Fatal(fault)
		}
		if _, fault := p.Prepare(0, r); fault != nil {
			t.Fatal(fault)
		}
		if a := r.Body.Assets; len(a) != 2 || a[0].Tokens != test.picture || a[1].Tokens != test.film {
			t.Errorf("%s: %+v, expected %d and %d tokens", test.estimate, a, test.picture, test.film)
		}
	}
}
