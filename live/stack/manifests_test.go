package stack

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
)

// Document 002's walk under load says the same in both times: what no route matches has
// no step but the client's, and what one does takes the rewritten path to a pod.
func TestManifestsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/default/my-llm/v1/chat/completions": "completed", "/other/v1/chat/completions": "refused"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			manifests, err := filepath.Abs("../../examples/manifests/document-002")
			if err != nil {
				t.Fatal(err)
			}
			live, _ := liveAsVirtual(t, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\nname: m\nmanifests: "+manifests+"\nworkload: {requests: 4, path: "+path+", outputTokens: 3}\n")
			ended := 0
			for _, e := range live {
				if e.Hop == flow.Client && e.Step == flow.Finished && e.Details.Get("outcome") == want {
					ended++
				}
				if e.Step == flow.RequestReceived && e.Hop == flow.EPP && !strings.HasPrefix(e.Details.Get("path").(string), "/default/my-llm/") {
					t.Errorf("the picker saw %v", e.Details)
				}
			}
			if ended != 4 {
				t.Errorf("%d of 4 requests ended as %s", ended, want)
			}
		})
	}
}
