package program

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario"
)

// The endpoints file has a path of its own, and stays after a run.
func TestEndpointsFileStays(t *testing.T) {
	o := testOutside(&bytes.Buffer{})
	o.Env = func(name string) (string, bool) { return filepath.FromSlash("/cache"), name == "WINDTUNNEL_CACHE" }
	x, err := (&runCmd{EPP: "127.0.0.1:9002"}).elsewhere(o)
	if want := filepath.FromSlash("/cache/endpoints.yaml"); err != nil || x.EndpointsFile != want {
		t.Fatalf("%q %v, expected %s", x.EndpointsFile, err, want)
	}
}

// A run asks an external server for a model that the server serves, and prints it, or a hint.
func TestModelOfTheServer(t *testing.T) {
	t.Parallel()
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || answer == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	for _, c := range []struct {
		name, answer string
		run          runCmd
		model, says  string
		code         exit.Code
	}{
		{"the one model", `{"data":[{"id":"lora","parent":"real"},{"id":"real","parent":null}]}`, runCmd{}, "real",
			"asking for model real, which " + address + " serves", exit.OK},
		{"the scenario's", `{"data":[{"id":"other"},{"id":"asked"}]}`, runCmd{loadFlags: loadFlags{File: "x.yaml"}},
			"asked", "", exit.OK},
		{"not the scenario's", `{"data":[{"id":"other"}]}`, runCmd{loadFlags: loadFlags{File: "x.yaml"}}, "",
			"--model other", exit.Input},
		{"given", "", runCmd{loadFlags: loadFlags{deployFlags: deployFlags{Model: "m"}}}, "m", "", exit.OK},
		{"no such page", "", runCmd{}, "", "--model NAME", exit.Environment},
		{"no model", `{"data":[]}`, runCmd{}, "", "serves no model", exit.Environment},
		{"no list", `<html>`, runCmd{}, "", "--model NAME", exit.Environment},
	} {
		var out bytes.Buffer
		o := testOutside(&out)
		answer = c.answer
		p := &scenario.Pool{Model: "asked", Endpoints: []string{address}}
		err := c.run.model(context.Background(), o, p)
		if err != nil {
			printError(o, err)
		}
		if exit.Of(err) != c.code || c.code == exit.OK && p.Model != c.model ||
			!strings.Contains(out.String(), c.says) {
			t.Errorf("%s: exit code %d, model %q\n%s", c.name, exit.Of(err), p.Model, out.String())
		}
	}
}
