package imports

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
)

const log = `{"log":{"format":1,"windtunnel":"1","picker":1,"pool":"chat","config":"kind: A","name":"","seed":1,"scrapeInterval":0}}
{"log":{"format":1,"windtunnel":"1","picker":2,"pool":"chat","replica":"chat-2","config":"kind: B","name":"","seed":1,"scrapeInterval":0}}
{"snapshot":{"picker":1,"state":{"at":0,"picker":{"pool":{"endpoints":[{"name":"a","address":"10.0.0.1","port":"8000","blockSize":32,"blocks":500}]}}}}}
{"input":{"picker":1,"at":0,"endpoints":[{"name":"a"},{"name":"a","rank":1},{"name":"b","labels":{"llm-d.ai/role":"decode"}},{"name":"c","labels":{"llm-d.ai/role":"prefill"}}]}}
{"input":{"picker":1,"at":5,"endpoints":[{"name":"a"}]}}
{"input":{"picker":2,"at":6,"scraped":{"endpoint":"default/a","page":[{"name":"vllm:cache_config_info","typed":true,"samples":[{"labels":[["block_size","16"],["num_gpu_blocks","400"]],"value":1}]}]}}}
{"input":{"picker":1,"at":1000,"request":1,"arrive":{"id":"x","headers":[],"bytes":9,"body":{"kind":"chat","parser":"openai-parser","model":"m","prompts":[{"bytes":2404,"unit":256,"heads":""}]}}}}
{"input":{"picker":1,"at":2000,"request":2,"arrive":{"id":"y","headers":[],"bytes":9,"body":{"kind":"completions","parser":"openai-parser","model":"m","prompts":[{"bytes":40,"unit":256,"heads":""}]}}}}
{"input":{"picker":1,"at":2000,"request":3,"arrive":{"id":"z","headers":[],"bytes":9}}}
{"input":{"picker":1,"at":9000,"request":1,"done":{"read":{"usage":true,"completion":7,"end":true}}}}
`

func readLog(text string, alone bool) (*Recording, error) {
	return ReadRecording("x.ndjson", alone, func(line func([]byte) error, _ func([]byte)) error {
		for l := range strings.Lines(text) {
			if err := line([]byte(strings.TrimSuffix(l, "\n"))); err != nil {
				return err
			}
		}
		return nil
	})
}

// A log gives the requests, and the pool as its picker saw it: the most servers at one time, by role, and their caches.
func TestRecording(t *testing.T) {
	r, err := readLog(log, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Requests) != 2 || r.Requests[0].Prompt[0].Bytes != 2404 || r.Requests[1].At != 1000 {
		t.Errorf("found %+v", r.Requests)
	}
	var set []string
	for _, s := range r.Settings {
		if s.By != "--recording x.ndjson" {
			t.Errorf("%s is by %q", s, s.By)
		}
		set = append(set, strings.TrimPrefix(s.String(), "pools[0]."))
	}
	want := []string{`model="m"`, "epp.config=kind: B", "replicas=2", "sidecar=routing",
		"disaggregation.prefillReplicas=1", "modelServer.dataParallelSize=2", "modelServer.blockSize=16",
		"modelServer.numGPUBlocks=400"}
	if d := cmp.Diff(want, set); d != "" {
		t.Error(d)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"has 2 requests", "left out: 1 requests", "lacks the answer's length of ",
		"3 model servers", "the recording lacks the accelerator"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if r, err = readLog(log, false); err != nil || len(r.Settings) > 0 || len(r.Requests) != 2 {
		t.Errorf("beside a scenario: found %v, %v", r, err)
	}
}

// What is no recording of one pool is refused with what was expected.
func TestRecordingErrors(t *testing.T) {
	another := strings.Replace(log, `"picker":2,"pool":"chat"`, `"picker":2,"pool":"code"`, 1)
	for text, want := range map[string]string{
		"":                           "no request with a prompt",
		another:                      "has 2 pools (chat, code); expected one, or a scenario",
		`{"input":{"endpoints":[1]}`: "not a line of a log of inputs",
	} {
		if _, err := readLog(text, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v; expected %s", err, want)
		}
	}
	if _, err := readLog(another, false); err != nil {
		t.Errorf("two pools beside a scenario: %v", err)
	}
	var format *inputlog.FormatError
	if _, err := readLog(strings.ReplaceAll(log, `"format":1`, `"format":9`), true); !errors.As(err, &format) {
		t.Errorf("another format: found %v", err)
	}
}

// No text makes the reader panic, and what it accepts has requests.
func FuzzRecording(f *testing.F) {
	f.Add(log)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := readLog(text, true); err == nil && len(r.Requests) == 0 {
			t.Errorf("found no request in %q", text)
		}
	})
}
