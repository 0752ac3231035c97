package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// streamedBytes is the size of a streamed token: a server-sent event of vLLM with a model's name of middle length.
const streamedBytes = 220

// envoy reads Envoy's access log in JSON. The names of its fields are the operator's choice: with Envoy's json_format
// they are known by their command operators, and by their names otherwise.
type envoy struct {
	format map[string]string // command operators by the names of fields; nil guesses
	fields map[string]string // what the fields of a line are, by their names

	models, servers          map[string]bool
	other, prompts, answered int // lines of other requests; requests whose lengths are those of bodies
}

// newEnvoy returns the reader; format is the json_format of Envoy's configuration as JSON, or empty.
func newEnvoy(format string) (*envoy, error) {
	e := &envoy{fields: map[string]string{}, models: map[string]bool{}, servers: map[string]bool{}}
	if format == "" {
		return e, nil
	}
	var nested map[string]any
	if err := json.Unmarshal([]byte(format), &nested); err != nil {
		return nil, fmt.Errorf("the log's format: %w; expected Envoy's json_format as a JSON object, such as "+
			`{"start_time": "%%START_TIME%%"}`, err)
	}
	e.format = map[string]string{}
	flatten("", nested, e.format)
	kinds := map[string]bool{}
	for name, operator := range e.format {
		kinds[meaning(operator)] = true
		e.fields[name] = meaning(name + " " + operator)
	}
	if !kinds["time"] {
		return nil, errors.New("the log's format: no field is %START_TIME%; expected the time of each request")
	}
	return e, nil
}

// flatten writes the fields of nested objects, with dots between their names.
func flatten(path string, object map[string]any, out map[string]string) {
	for name, v := range object {
		switch v := v.(type) {
		case map[string]any:
			flatten(path+name+".", v, out)
		case nil:
		case float64:
			out[path+name] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			out[path+name] = fmt.Sprint(v)
		}
	}
}

// meaning returns what a field is, by its name or Envoy's command operator.
func meaning(text string) string {
	text = strings.ToLower(text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has("token"):
		switch {
		case has("cache"), has("total"), has("reason"):
			return ""
		case has("output", "completion", "generat", "response"):
			return "output"
		case has("input", "prompt", "request"):
			return "input"
		}
	case has("start_time", "starttime", "timestamp", "@time"), text == "time":
		return "time"
	case has("bytes_received", "bytesreceived"):
		return "received"
	case has("bytes_sent", "bytessent"):
		return "sent"
	case has("response_code_details"):
	case has("response_code", "responsecode"), text == "status":
		return "code"
	case has("content_type", "content-type"):
		return "type"
	case has("upstream_host", "upstreamhost"):
		return "server"
	case has("model"):
		return "model"
	case has(":method"), text == "method":
		return "method"
	}
	return ""
}

func (e *envoy) line(text string) (r row, header bool, err error) {
	var nested map[string]any
	if err := json.Unmarshal([]byte(text), &nested); err != nil {
		return r, false, fmt.Errorf("%w; expected a line of Envoy's access log as a JSON object", err)
	}
	flat, x := map[string]string{}, map[string]string{}
	flatten("", nested, flat)
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		kind, known := e.fields[name]
		if !known && e.format == nil {
			kind = meaning(name)
			e.fields[name] = kind
		}
		if v := flat[name]; kind != "" && v != "-" && v != "" {
			x[kind] = cmp.Or(x[kind], v)
		}
	}
	if x["time"] == "" {
		return r, false, errors.New("no field is the request's time; expected start_time, or the log's format " +
			"(trace.logFormat) with %START_TIME%")
	}
	if r.at, err = logTime(x["time"]); err != nil {
		return r, false, err
	}
	if x["method"] != "" && x["method"] != "POST" {
		e.other++
		return r, true, nil
	}
	if r.input, err = count(x["input"]); err != nil {
		return r, false, err
	}
	if r.input == 0 {
		if r.input, err = count(x["received"]); err != nil {
			return r, false, err
		}
		e.prompts++
		r.input = (r.input + bytesPerToken - 1) / bytesPerToken
	}
	if r.input = min(r.input, maxTokens); r.input == 0 {
		e.other++ // a request without a body
		return r, true, nil
	}
	if x["code"] != "" && !strings.HasPrefix(x["code"], "2") {
		return r, false, nil // no answer
	}
	if r.output, err = count(x["output"]); err != nil {
		return r, false, err
	}
	if r.output == 0 {
		if r.output, err = count(x["sent"]); err != nil {
			return r, false, err
		}
		e.answered++
		per := streamedBytes
		if strings.Contains(x["type"], "json") {
			per = bytesPerToken
		}
		r.output = min(maxTokens, (r.output+per-1)/per)
	}
	see(e.models, x["model"])
	see(e.servers, x["server"])
	return r, false, nil
}

// see adds a name to those of the log, which are bounded.
func see(names map[string]bool, name string) {
	if name != "" && len(names) < 1<<16 {
		names[name] = true
	}
}

// count reads a whole number, 0 for an empty text.
func count(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v < 1<<52) {
		return 0, fmt.Errorf("found %.80q; expected a whole number of tokens or bytes", text)
	}
	return int(v), nil
}

// logTime reads Envoy's START_TIME: by default 2024-03-01T12:00:00.123Z, or seconds or milliseconds since 1970.
func logTime(text string) (float64, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return float64(at.UnixNano()) / 1e9, nil
	}
	at, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(at) || math.Abs(at) > 1e15 {
		return 0, fmt.Errorf("found the time %.80q; expected such as 2024-03-01T12:00:00.123Z", text)
	}
	if at > 1e11 { // milliseconds
		at /= 1e3
	}
	return at, nil
}

func (e *envoy) assumed() []string {
	out := []string{allDifferent}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if e.prompts > 0 {
		add("%d requests are logged without the tokens of their prompts: a prompt has a token for %d bytes of its body",
			e.prompts, bytesPerToken)
	}
	if e.answered > 0 {
		add("%d requests are logged without the tokens of their answers: an answer has a token for %d bytes, one that "+
			"is JSON for %d", e.answered, streamedBytes, bytesPerToken)
	}
	if e.other > 0 {
		add("%d lines of requests without a body are left out", e.other)
	}
	return append(out, askedOf(e.models, e.servers)...)
}
