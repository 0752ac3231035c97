package stack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// A response can be cancelled, or rather not, and gone on from through the whole
// stack; of one that another replica made it is said where it would be.
func TestResponsesThroughReplicas(t *testing.T) {
	t.Parallel()
	pools := map[string]*scenario.Scenario{"held": quick(nil), "plain": quick(func(s *scenario.Scenario) { s.Pools[0].Flow = scenario.Plain }),
		"sidecars": withTokenizer(t, tokenizerPools["prefill and decode"])}
	for name, s := range pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, s, nil)
			body := func(more string) string {
				return `{"model":"m","input":"hi","max_output_tokens":4` + more + `}`
			}
			made := r.post("/v1/responses", body(""))
			var resp struct{ ID string }
			if err := json.Unmarshal([]byte(made.body), &resp); err != nil || made.status != 200 {
				t.Fatalf("%+v %v", made, err)
			}
			found, elsewhere := map[string]int{}, map[string]int{}
			for range 4 { // round robin: two of them reach the server that made it
				for what, a := range map[string]answer{"cancel": r.post("/v1/responses/"+resp.ID+"/cancel", ""), "go on": r.post("/v1/responses", body(`,"previous_response_id":"`+resp.ID+`"`))} {
					switch {
					case what == "cancel" && a.status == 400 && strings.Contains(a.body, "Cannot cancel a synchronous response."), what == "go on" && a.status == 200:
						found[what]++
					case a.status == 404 && strings.Contains(a.body, "not found") && strings.Contains(a.body, "another server"):
						elsewhere[what]++
					default:
						t.Errorf("%s: %d %s", what, a.status, a.body)
					}
				}
			}
			t.Log(found, elsewhere)
			if found["go on"]+elsewhere["go on"] != 4 || found["cancel"]+elsewhere["cancel"] != 4 {
				t.Errorf("found %v, elsewhere %v", found, elsewhere)
			}
		})
	}
}
