package gateway_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/windtunnel/windtunnel/core/gateway"
)

// Any bytes are refused or understood: nothing panics, what is served has routes in
// their order, and a request to any of its hosts gets a verdict.
func FuzzManifests(f *testing.F) {
	files, err := filepath.Glob("../../examples/manifests/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no examples: %v", err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Set{}
		if s.Add("m.yaml", text) != nil {
			return
		}
		for _, o := range []Options{{Supply: true}, {Controller: "example.com/c"}} {
			p := Build(s, o)
			for _, g := range p.Gateways {
				for _, table := range g.Tables() {
					for _, h := range table.Hosts {
						for _, r := range h.Routes {
							_ = r.String()
						}
						v := table.Decide(Request{Method: "GET", Host: h.Domain, Target: "/v1/chat/completions"}, 80,
							func(int) int { return 0 })
						if v.Status == 0 && v.Share.Backend == nil {
							t.Fatalf("%q: no status and no backend", h.Domain)
						}
					}
				}
			}
			for _, x := range p.Status {
				_ = x.String()
			}
		}
	})
}
