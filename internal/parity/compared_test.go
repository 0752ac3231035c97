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

// questions are the fields of a step that describe actions. All others describe the picker's reactions.
var questions = []string{"metrics", "metrics_raw", "scrape_fail", "scrape_ok", "request", "hold", "response", "finish",
	"usage", "response_headers",
	"response_chunks", "response_headers_sent", "content_type", "response_chunk_sent", "chunk", "eos",
	"response_eos_sent", "sleep_s", "client_cancels",
	"abort", "how", "note", "endpoints_file_now", "endpoints_file_raw", "requests", "request_template", "conversation",
	"sent", "kube_create", "kube_patch",
	"kube_delete", "probes", "burst", "saturation", "after_arrival", "after_priority", "partial_response_sent",
	"http_get", "received_on_held", "pattern",
	"distinct_creation_seconds"}

// uncompared are the answers that no comparison uses, by topic and place. docs/parity.md lists them too.
var uncompared = map[string]string{
	`[^ ]* observed\.messages\[\]\.(eos|size)`: "the number of messages of a body, and the length of a " +
		"marshalled one",
	`[^ ]* (start_)?errors\[\].*|[^ ]* warnings\[\].*`: "texts of refusals and warnings",
	`[^ ]* exit_code`: "the exit code of a refusal",
	`(endpoints-file|config-acceptance) effective`: "only the list of plug-ins is compared",
	`[^ ]* refused.*|[^ ]* code`:                   "what the API server says",
	`[^ ]* runs\[\]\.(first_seen_s|count)`:         "the delay of a change",
	`[^ ]* blocked_after_s`: "the comparison is that it waited, not how long " +
		"the recorder watched",
	`[^ ]* (body_models|counts|distribution)\..*`: "shares, which differ by chance",
	`[^ ]* (answered_so_far|dispatched_before_release)\[\]`: "one dispatch more or less: the detector's " +
		"overshoot",
	`kubernetes-debug body\.timestamp`:                                  "the time",
	`kubernetes-priority (answered_before|order_ms\[\]\[\]\[?[01]?\]?)`: "the pace of an oscillation",
	`kubernetes-priority evicted\[\]\.observed\.type`:                   "the status shows that it is a refusal",
	`kubernetes-priority observed\[\]\.(eos|size)`:                      "pieces of a response of another length",
	`inflight-lifecycle end|flow-control-ttl observed\.ended`:           "how a stream ended that its client had left",
}

// leaf is one answer in a recorded line, with a function that replaces it.
type leaf struct {
	place string
	put   func(v any)
	v     any
}

// leaves calls a function for each answer below a value. Names of families, plug-ins, endpoints and the like are not
// part of a place.
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

// other returns a different answer.
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

// Every recorded answer of the real picker is compared: if it is replaced, the recording no longer passes. What is
// not compared is listed. Outside nightly runs, the test covers a tenth of the topics.
func TestRecordedAnswersAreCompared(t *testing.T) {
	const tries = 3 // some places have a meaning only in some lines
	listed := map[*regexp.Regexp]*atomic.Bool{}
	for pattern := range uncompared {
		listed[regexp.MustCompile("^(?:"+pattern+")$")] = &atomic.Bool{}
	}
	t.Run("topics", func(t *testing.T) {
		for _, f := range nightly.Some(recordings(t)) {
			topic := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
			t.Run(topic, func(t *testing.T) {
				t.Parallel()
				reported, same := map[string]bool{}, map[string]int{}
				for _, text := range recordedLines(t, f) {
					for place, differs := range others(t, text) {
						if reported[place] || same[place] >= tries {
							continue
						}
						var known []*atomic.Bool
						for pattern, used := range listed {
							if pattern.MatchString(topic + " " + place) {
								known = append(known, used)
							}
						}
						if reported[place] = differs(false) || known == nil && differs(true); reported[place] {
							continue
						}
						same[place]++
						for _, used := range known {
							used.Store(true)
							same[place] = 2 * tries // enough attempts
						}
					}
				}
				for _, place := range slices.Sorted(maps.Keys(same)) {
					if !reported[place] && same[place] < 2*tries {
						t.Errorf("%s is not compared", place)
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

// others replaces each answer of a line in turn. The yielded function reports whether the line then differs in
// another way, in core/epp or through the port.
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

// answersOf calls a function for each answer of the picker in a line.
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

// differences returns a line's differences, in core/epp or through the port. A line that cannot be played has one
// too.
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

// recordedLines returns the lines of a topic.
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
