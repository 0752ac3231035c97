package stack

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// Responses can be fetched and continued through the whole stack, and cancelling one is refused. An error for a
// response of another replica says where it would be. Requests of one session always find it; requests without a body
// reach any server, by the picker's decision.
func TestResponsesThroughReplicas(t *testing.T) {
	t.Parallel()
	plain := func(s *scenario.Scenario) { s.Pools[0].Flow = scenario.Plain }
	sessions := func(s *scenario.Scenario) {
		plain(s)
		s.Pools[0].EPP.Config = scenario.PickerConfig{File: "epp.yaml",
			Text: []byte(`plugins: [{type: single-profile-handler}, {type: session-affinity-filter, parameters: {strategy: session_id}}, {type: round-robin-picker}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: session-affinity-filter}, {pluginRef: round-robin-picker}]}]`)}
	}
	kept := func(s *scenario.Scenario) *scenario.Scenario {
		s.Pools[0].ModelServer.StoreResponses = true
		return s
	}
	for name, c := range map[string]struct {
		s     *scenario.Scenario
		found []int // how many of four times it may be
	}{
		"held":     {quick(nil), []int{2}}, // round robin
		"plain":    {quick(plain), []int{2}},
		"sessions": {quick(sessions), []int{4}},
		"sidecars": {withTokenizer(t, tokenizerPools["prefill and decode"]), []int{0, 1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, kept(c.s), nil)
			body := func(more string) string {
				return `{"model":"m","input":"hi","max_output_tokens":4` + more + `}`
			}
			session := []string{"x-session-id", "one"}
			made := r.post("/v1/responses", body(""), session...)
			var resp struct{ ID string }
			if err := json.Unmarshal([]byte(made.body), &resp); err != nil || made.status != 200 {
				t.Fatalf("%+v %v", made, err)
			}
			ask := map[string]func() (a answer, found bool){
				"go on": func() (answer, bool) {
					a := r.post("/v1/responses", body(`,"previous_response_id":"`+resp.ID+`"`), session...)
					return a, a.status == 200 && strings.Contains(a.body, `"previous_response_id":"`+resp.ID)
				},
				"cancel": func() (answer, bool) {
					a := r.post("/v1/responses/"+resp.ID+"/cancel", "", session...)
					return a, a.status == 400 && strings.Contains(a.body, "Cannot cancel a synchronous response.")
				},
				"get": func() (answer, bool) {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					a := do(r.request(ctx, http.MethodGet, "/v1/responses/"+resp.ID, "", session...))
					return a, a.status == 200 && strings.Contains(a.body, resp.ID)
				},
			}
			for what, ask := range ask {
				found, elsewhere := 0, 0
				for range 4 {
					switch a, ok := ask(); {
					case ok:
						found++
					case a.status == 404 && strings.Contains(a.body, "not found") &&
						strings.Contains(a.body, "another server"):
						elsewhere++
					default:
						t.Errorf("%s: %d %s", what, a.status, a.body)
					}
				}
				if found+elsewhere != 4 || what == "go on" && !slices.Contains(c.found, found) {
					t.Errorf("%s: found %d times, elsewhere %d times", what, found, elsewhere)
				}
			}
		})
	}
}
