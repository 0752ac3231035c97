package plugins

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// The scorer prefers an endpoint that has seen the image, until other images have filled the endpoint's cache.
func TestEmbeddingsCache(t *testing.T) {
	cfg, err := config.Read("epp.yaml",
		[]byte("plugins: [{type: mm-embeddings-cache-producer, parameters: {cacheSizeInMBPerServer: 4}}, {type: "+
			"mm-embeddings-cache-scorer}]"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := picker.New(cfg, Builtin(), picker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.Pool().Set([]*picker.Endpoint{picker.NewEndpoint("d", "a", "127.0.0.1", "1", nil),
		picker.NewEndpoint("d", "b", "127.0.0.2", "1", nil)})
	n := uint64(0)
	ask := func(images ...string) (string, map[string]float64) {
		t.Helper()
		body := `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what is it?"}`
		for _, i := range images {
			body += fmt.Sprintf(`,{"type":"image_url","image_url":{"url":%q}}`, i)
		}
		n++
		r, fault := p.NewRequest(header.Of(":path", "/v1/chat/completions"), []byte(body+"]}]}"), true, n)
		if fault == nil {
			_, fault = p.Prepare(0, r)
		}
		if fault != nil {
			t.Fatal(fault)
		}
		d := p.Pick(0, r, p.Pool().View(), nil, nil)
		p.Commit(0, d)
		p.Release(0, d)
		return d.Destination(), d.Scores()
	}
	first, scores := ask("cat")
	if scores[first] != 0 {
		t.Errorf("nobody has seen it, but: %v", scores)
	}
	if again, scores := ask("cat", "dog"); again != first || scores[first] != .5 {
		t.Errorf("%s, then %s with %v", first, again, scores)
	}
	// An image is taken for 2 MB: of three only two fit.
	ask("cat", "bird")
	ask("cat", "fish")
	if _, scores := ask("dog"); scores["127.0.0.1:1"]+scores["127.0.0.2:1"] != 0 {
		t.Errorf("the dog is still there: %v", scores)
	}
	if _, scores := ask(); scores["127.0.0.1:1"] != 0 {
		t.Errorf("no image, but: %v", scores)
	}
}
