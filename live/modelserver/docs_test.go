package modelserver

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver"
)

// Every path that docs/modelserver.md lists is served, with that method.
func TestDocumentedPaths(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/modelserver.md")
	if err != nil {
		t.Fatal(err)
	}
	o := fast()
	o.StoreResponses = true
	s, err := newServer(&Options{Logger: discard()}, o, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux, ok := s.routes().(*http.ServeMux)
	if !ok {
		t.Fatal("the routes are no mux")
	}
	listed := regexp.MustCompile("`(GET|POST|DELETE|HEAD) (/[^` ]*)`").FindAllStringSubmatch(string(page), -1)
	if len(listed) < 25 {
		t.Fatalf("%d paths listed", len(listed))
	}
	for _, m := range listed {
		path := strings.NewReplacer("{id}", "x", "{item}", "y").Replace(m[2])
		r, err := http.NewRequest(m[1], path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, pattern := mux.Handler(r); pattern == "/" || pattern == "" {
			t.Errorf("%s %s is documented and not served", m[1], m[2])
		}
	}
	for _, kind := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)(=|`)").FindAllStringSubmatch(
		string(page[strings.Index(string(page), "## Trouble"):]), -1) {
		value := kind[1]
		switch value {
		case "crash", "fail-rank": // the engine's, see TestEngineFaults
			continue
		case "status":
			value = "status=500"
		case "delay":
			value = "delay=1s"
		case "reset-after":
			value = "reset-after=1"
		}
		if _, err := modelserver.ParseFault(value); err != nil {
			t.Error(err)
		}
	}
}
