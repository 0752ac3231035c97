package virtual

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// A server that schedules by priority serves those first who asked for it, in virtual time, too,
// whether requests are described, written or take every step.
func TestPrioritiesAct(t *testing.T) {
	t.Parallel()
	for policy, least := range map[string]int{"priority": 0, "fcfs": 50} {
		for name, o := range map[string]Options{"described": {}, "in bytes": {Bytes: true},
			"step by step": {StepByStep: true}} {
			s := parse(t, fmt.Sprintf(
				"model: llama-3.1-8b, flow: plain, replicas: 1, modelServer: {batching: continuous, accelerator: "+
					"H100, maxNumSeqs: 2, schedulingPolicy: %s}", policy),
				"requests: 60, concurrency: 60, outputTokens: 20, classes: [{name: urgent, share: 50%, priority: "+
					"-5}, {name: batch, share: 50%, priority: 5}]")
			class, batch, urgent, overtaken := map[string]string{}, 0, 0, 0
			_, err := Play(s, record.Func(func(e record.Event) {
				switch {
				case e.Step == record.RequestSent:
					class[e.Request], _ = e.Details.Get("class").(string)
				case e.Step == record.Finished && class[e.Request] == "batch":
					batch++
				case e.Step == record.Finished:
					urgent++
					overtaken += batch
				}
			}), o)
			if err != nil || urgent < 10 || batch < 10 {
				t.Fatalf("%d and %d requests ended, %v", urgent, batch, err)
			}
			// Two may have begun before anybody more urgent was there.
			if overtaken < least || policy == "priority" && overtaken > 2*urgent {
				t.Errorf("%s, %s: batch requests were served before urgent ones %d times", policy, name, overtaken)
			}
		}
	}
}
