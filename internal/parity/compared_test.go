package parity

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/internal/nightly"
)

// questions are the fields of a step that say what was done. All others say
// what came of it.
var questions = []string{"metrics", "metrics_raw", "scrape_fail", "scrape_ok", "request", "hold", "response", "finish",
	"usage", "response_headers",
	"response_chunks", "response_headers_sent", "content_type", "response_chunk_sent", "chunk", "eos",
	"response_eos_sent", "sleep_s", "client_cancels",
	"abort", "how", "note", "endpoints_file_now", "endpoints_file_raw", "requests", "request_template", "conversation",
	"sent", "kube_create", "kube_patch",
	"kube_delete", "probes", "burst", "saturation", "after_arrival", "after_priority", "partial_response_sent",
	"http_get", "received_on_held", "pattern",
	"distinct_creation_seconds"}

// uncompared are the answers that no comparison looks at, by topic and place.
// docs/parity.md has them, too.
var uncompared = map[string]string{
	`[^ ]* observed\.messages\[\]\.(eos|size)`: "into how many messages a body was cut, and the length of a " +
		"marshalled one",
	`[^ ]* (start_)?errors\[\].*|[^ ]* warnings\[\].*`: "texts of refusals and warnings",
	`[^ ]* exit_code`: "the exit code of a refusal",
	`(endpoints-file|config-acceptance) effective`: "of its text only which plug-ins there are",
	`[^ ]* refused.*|[^ ]* code`:                   "what the API server says",
	`[^ ]* runs\[\]\.(first_seen_s|count)`:         "how soon a change shows",
	`[^ ]* blocked_after_s`: "that it waited is compared, not how long " +
		"the recorder watched",
	`[^ ]* (body_models|counts|distribution)\..*`: "shares, which differ by chance",
	`[^ ]* (answered_so_far|dispatched_before_release)\[\]`: "one dispatch more or less: the detector's " +
		"overshoot",
	`kubernetes-debug body\.timestamp`:                                  "the time",
	`kubernetes-priority (answered_before|order_ms\[\]\[\]\[?[01]?\]?)`: "of a rhythm its pace",
	`kubernetes-priority evicted\[\]\.observed\.type`:                   "that it is a refusal says the status",
	`kubernetes-priority observed\[\]\.(eos|size)`:                      "pieces of a response of another length",
	`inflight-lifecycle end|flow-control-ttl observed\.ended`:           "how a stream ended that its client had left",
}

// leaf is one answer in a recorded line, and how another one is put there.
type leaf struct {
	place string
	put   func(v any)
	v     any
}

// leaves are the answers below a value. Names of families, plug-ins, endpoints
// and the like make no place of their own.
func leaves(v any, place string, put func(any), each func(leaf)) {
	switch x := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			name := k
			if unnamed.MatchString(place) {
				name = "*"
			}
			if k != "pattern" {
				leaves(x[k], place+"."+name, func(n any) { x[k] = n }, each)
			}
		}
	case []any:
		for i := range x {
			at := "[]"
			if strings.HasSuffix(place, "set_headers[]") {
				at = fmt.Sprintf("[%d]", i)
			}
			leaves(x[i], place+at, func(n any) { x[i] = n }, each)
		}
	case nil:
	default:
		each(leaf{place, put, v})
	}
}

var unnamed = regexp.MustCompile(
	`(values|types|plugins|status|counts|rejections|body_models|distribution|dispatched|seconds_until_answer|envoy\.lb|scores|state)$`)

// other is another answer.
func other(v any) any {
	switch x := v.(type) {
	case string:
		return x + "~"
	case float64:
		return x + 7
	case bool:
		return !x
	}
	return v
}

// Whatever was recorded of the real picker's answers is compared: with another
// answer in its place a recording is told to differ. What is not compared is
// listed. A tenth of the topics, and all at night.
func TestRecordedAnswersAreCompared(t *testing.T) {
	const tries = 3 // places that mean nothing here and something there
	listed := map[*regexp.Regexp]*atomic.Bool{}
	for pattern := range uncompared {
		listed[regexp.MustCompile("^(?:"+pattern+")$")] = &atomic.Bool{}
	}
	t.Run("topics", func(t *testing.T) {
		for _, f := range nightly.Some(recordings(t)) {
			topic := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
			t.Run(topic, func(t *testing.T) {
				t.Parallel()
				told, same := map[string]bool{}, map[string]int{}
				for _, text := range recordedLines(t, f) {
					for place, differs := range others(t, text) {
						if told[place] || same[place] >= tries {
							continue
						}
						var known []*atomic.Bool
						for pattern, used := range listed {
							if pattern.MatchString(topic + " " + place) {
								known = append(known, used)
							}
						}
						if told[place] = differs(false) || known == nil && differs(true); told[place] {
							continue
						}
						same[place]++
						for _, used := range known {
							used.Store(true)
							same[place] = 2 * tries // enough
						}
					}
				}
				for _, place := range slices.Sorted(maps.Keys(same)) {
					if !told[place] && same[place] < 2*tries {
						t.Errorf("%s may say anything", place)
					}
				}
			})
		}
	})
	for pattern, used := range listed {
		if nightly.On() && !used.Load() {
			t.Errorf("%s is compared, though it is listed as not", pattern)
		}
	}
}

// others goes through the answers of a line: with another one in its place, does
// the line differ in another way, in core/epp or through the port?
func others(t *testing.T, text []byte) iter.Seq2[string, func(port bool) bool] {
	var line map[string]any
	if err := json.Unmarshal(text, &line); err != nil {
		t.Fatal(err)
	}
	base := map[bool]string{}
	return func(yield func(string, func(bool) bool) bool) {
		if l, err := readLine(text); err != nil || l.elsewhere() != "" {
			return
		}
		answersOf(line, func(l leaf) {
			yield(l.place, func(port bool) bool {
				l.put(other(l.v))
				defer l.put(l.v)
				mutant, err := json.Marshal(line)
				if err != nil {
					t.Fatal(err)
				}
				if base[port] == "" {
					base[port] = differences(t, text, port)
				}
				return differences(t, mutant, port) != base[port]
			})
		})
	}
}

// answersOf goes through what a line tells of the picker.
func answersOf(line map[string]any, check func(leaf)) {
	for _, k := range []string{"accepted", "effective", "start_errors", "errors", "warnings", "exit_code"} {
		if v, ok := line[k]; ok {
			leaves(v, k, func(n any) { line[k] = n }, check)
		}
	}
	steps, _ := line["steps"].([]any)
	for _, s := range steps {
		step, _ := s.(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(step)) {
			if !slices.Contains(questions, k) {
				leaves(step[k], k, func(n any) { step[k] = n }, check)
			}
		}
	}
}

// differences are those of a line, in core/epp or through the port. A line that
// cannot be played differs, too.
func differences(t *testing.T, text []byte, port bool) (all string) {
	defer func() {
		if p := recover(); p != nil {
			all = fmt.Sprint(p)
		}
	}()
	l, err := readLine(text)
	if err != nil {
		return err.Error()
	}
	var faults []Fault
	switch {
	case l.Accepted != nil:
		faults = acceptance(l)
	case port:
		t.Run(l.ID, func(t *testing.T) { faults = play(l, openPort(t, l.pool(), l)) })
	default:
		faults = Play(l)
	}
	list := []string{"played"}
	for _, f := range faults {
		list = append(list, fmt.Sprint(f))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// recordedLines are the lines of a topic as they are.
func recordedLines(t *testing.T, file string) [][]byte {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		out = append(out, bytes.Clone(sc.Bytes()))
	}
	if sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	return out
}
