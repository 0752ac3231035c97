package disagg

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// recorded is one line of testdata/sidecar.jsonl: what the real pd-sidecar
// v0.10.0 did with one request.
type recorded struct {
	ID        string
	Connector string
	Flags     []string
	Env       map[string]string
	Request   struct {
		Method, Path string
		Headers      [][2]string
		Body         string
	}
	Servers      map[string]json.RawMessage
	NotListening []string `json:"not_listening"`
	Received     []received
	ClientGot    struct {
		Status int
		Body   string
		Ended  string
	} `json:"client_got"`
}

type received struct {
	To, Method, Path string
	Headers          [][2]string
	Body             string
}

// behaviour is how a recorded server answers.
type behaviour struct {
	Status     int
	Body       json.RawMessage
	Reset      bool
	SSE        bool
	SSEBody    []string    `json:"sse_body"`
	PerRequest []behaviour `json:"per_request"`
}

// deviations are the lines on which windtunnel does right where the real
// sidecar is plainly wrong. docs/parity-sidecar.md says more about each.
var deviations = map[string]string{
	"nixlv2/hosts-dead-then-a":           "the next prefiller is tried when the first is dead",
	"nixlv2/prefill-kv-int-id":           "integers above 2^53 keep their digits",
	"nixlv2/fidelity":                    "numbers keep the form and the digits that they were written with",
	"nixlv2/body-null":                   "a body of null is a 400, where the real one's handler panics",
	"shared-storage/completions-mct-min": "min_tokens does not exceed the one token that is asked for",
	"mooncake/user-kv-unknown-n3":        "min_tokens does not exceed the one token that is asked for",
	"offloading/user-kv-unknown-n3":      "min_tokens does not exceed the one token that is asked for",
	"sglang/user-kv-unknown-n3":          "only the sidecar says where caches are fetched from",
	"nixlv2/sampling-1":                  "which prefiller is drawn is random",
	"nixlv2/sampling-2":                  "which prefiller is drawn is random",
	"nixlv2/sampling-4":                  "which prefiller is drawn is random",
}

const (
	okDecode = `{"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": ` +
		`"assistant", "content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, ` +
		`"completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 1}}}`
	okPrefill = `{"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": ` +
		`"assistant", "content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, ` +
		`"completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 4}}, ` +
		`"kv_transfer_params": {"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [1,` +
		` 2], "remote_engine_id": "e-1", "remote_host": "127.0.0.1", "remote_port": 5600, "tp_size": 1}}`
)

var okChunks = []string{
	`data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant",` +
		`"content":"h"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"i"},` +
		`"finish_reason":"stop"}]}` + "\n\n",
	`data: {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"prompt_tokens": 5, ` +
		`"completion_tokens": 2, "total_tokens": 7}}` + "\n\n",
	"data: [DONE]\n\n",
}

var ports = map[int]string{41203: "decode", 41204: "prefill-a", 41205: "prefill-b", 41298: "bootstrap"}

// player drives a ClientRequest against the recorded servers.
type player struct {
	t     *testing.T
	line  recorded
	c     *Config
	x     *ClientRequest
	now   machine.Time
	calls map[string]int
	seen  []received
	legs  map[int]reply
	body  bytes.Buffer
	got   int
}

type reply struct {
	status int
	kind   string
	chunks []string
}

func config(t *testing.T, l *recorded) *Config {
	c := &Config{Connector: connectorOf(l.Connector), Engines: NewEngines(), Seed: 7}
	for i := 0; i < len(l.Flags); i++ {
		next := func() int { i++; n, _ := strconv.Atoi(l.Flags[i]); return n }
		switch l.Flags[i] {
		case "--kv-connector":
			i++
		case "--prefill-max-retries":
			c.Retries = next()
		case "--decode-chunk-size":
			c.ChunkTokens = next()
		case "--enable-p2p-pull":
			c.P2PPull = true
		case "--enable-prefiller-sampling":
			c.Sample = true
		default:
			t.Fatalf("flag %s", l.Flags[i])
		}
	}
	switch c.Connector {
	case connector.Mooncake:
		c.MeetingPort = 41298
	case connector.SGLang:
		c.MeetingPort, _ = strconv.Atoi(l.Env["SGLANG_BOOTSTRAP_PORT"])
	}
	return c
}

func (p *player) play() {
	l := &p.line
	path, query, _ := strings.Cut(l.Request.Path, "?")
	r := Request{Number: 1, Method: l.Request.Method, Path: path, Body: []byte(l.Request.Body)}
	head := map[string]string{}
	for _, h := range l.Request.Headers {
		if _, has := head[strings.ToLower(h[0])]; !has {
			head[strings.ToLower(h[0])] = h[1]
		}
	}
	r.ID = head["x-request-id"]
	r.Prefillers = ParseTargets(head["x-prefiller-host-port"])
	r.Source = ParseSource(head["x-kv-cache-source-host-port"])
	p.calls, p.legs = map[string]int{}, map[int]reply{}
	if Alive(r.Method, r.Path) { // before any ClientRequest
		p.got = 200
		return
	}
	p.x = New(p.c, r)
	p.do(func(fx *Effects) { p.x.Input(p.now, Start{}, fx) }, query)
	for !p.x.Over() {
		at, ok := p.x.Next()
		if !ok {
			p.t.Fatalf("%s hangs", l.ID)
		}
		p.now = at
		p.do(func(fx *Effects) { p.x.Advance(at, fx) }, query)
	}
}

func (p *player) input(m Message, query string) {
	p.now += machine.Millisecond
	p.do(func(fx *Effects) { p.x.Input(p.now, m, fx) }, query)
}

func (p *player) do(call func(fx *Effects), query string) {
	var fx Effects
	call(&fx)
	for _, e := range fx.List {
		switch e := e.Do.(type) {
		case Call:
			p.call(e.Leg, query)
		case Collect:
			p.input(Whole{e.Leg, []byte(strings.Join(p.legs[e.Leg].chunks, ""))}, query)
		case Peek:
			r := p.legs[e.Leg]
			for len(r.chunks) > 0 && p.body.Len() == 0 {
				chunk := r.chunks[0]
				r.chunks = r.chunks[1:]
				p.legs[e.Leg] = r
				dropped := len(p.seen)
				p.input(Part{Leg: e.Leg, Data: []byte(chunk), End: len(r.chunks) == 0}, query)
				if len(p.seen) > dropped || p.x.Over() {
					break
				}
			}
		case Deliver:
			r := p.legs[e.Leg]
			p.got = r.status
			for _, chunk := range append([]string{string(e.Before)}, r.chunks...) {
				if chunk == "" {
					continue
				}
				out := []byte(chunk)
				if e.Change != nil {
					out = e.Change.Write(out)
				}
				p.body.Write(out)
			}
			if e.Change != nil {
				p.body.Write(e.Change.End())
			}
			p.input(Delivered{p.body.Len()}, query)
		case Answer:
			p.got = e.Status
			p.body.Write(e.Body)
		}
	}
}

func (p *player) call(l Leg, query string) {
	name, path := "decode", p.x.r.Path
	if l.Target.Host != "" {
		name = ports[l.Target.Port]
		if l.Target.TLS {
			name = ""
		}
	}
	if l.Path != "" {
		path = l.Path
	} else if query != "" {
		path += "?" + query
	}
	if name == "" || slices.Contains(p.line.NotListening, name) {
		p.input(Failed{Leg: l.ID,
			Reason:  fmt.Sprintf(`Get "http://%s/query": dial tcp %s: connect: connection refused`, l.Target, l.Target),
			Refused: true}, query)
		return
	}
	body := l.Body
	if l.Original {
		body = p.x.r.Body
	}
	method := p.x.r.Method
	if l.Method != "" {
		method = l.Method
	}
	var head [][2]string
	for _, h := range append(slices.Clone(l.Set), l.Add...) {
		head = append(head, [2]string{h.Name, h.Value})
	}
	p.seen = append(p.seen, received{name, method, path, head, string(body)})
	r, reset := p.serve(name, method, path, body)
	if reset {
		p.input(Failed{Leg: l.ID, Reason: "read tcp 127.0.0.1:50000->127.0.0.1:41203: read: connection reset by peer"},
			query)
		return
	}
	p.legs[l.ID] = r
	p.input(Head{Leg: l.ID, Status: r.status, ContentType: r.kind}, query)
	if l.Detached {
		p.input(Whole{l.ID, []byte(strings.Join(r.chunks, ""))}, query)
	}
}

func (p *player) serve(name, method, path string, body []byte) (reply, bool) {
	var b behaviour
	if raw, ok := p.line.Servers[name]; ok {
		if err := json.Unmarshal(raw, &b); err != nil {
			p.t.Fatal(err)
		}
	}
	if len(b.PerRequest) > 0 {
		b = b.PerRequest[min(p.calls[name], len(b.PerRequest)-1)]
	}
	p.calls[name]++
	r := reply{status: b.Status, kind: "application/json"}
	if r.status == 0 {
		r.status = 200
	}
	var text string
	switch {
	case b.SSEBody != nil:
		r.kind, r.chunks = "text/event-stream; charset=utf-8", b.SSEBody
	case b.Body != nil:
		if json.Unmarshal(b.Body, &text) == nil {
			r.chunks = []string{text}
			break
		}
		r.kind = "text/event-stream; charset=utf-8"
		_ = json.Unmarshal(b.Body, &r.chunks)
	case method == "GET" && name == "bootstrap":
		r.chunks = []string{`{"0":{"engine_id":"eng-0"}}`}
	case method == "GET" && path == "/v1/models":
		r.chunks = []string{`{"object":"list","data":[{"id":"m"}]}`}
	case method == "GET":
		r.chunks = []string{"decode " + path + "\n"}
	case name == "decode" && bytes.Contains(body, []byte(`"stream":true`)):
		r.kind, r.chunks = "text/event-stream; charset=utf-8", okChunks
	case name == "decode":
		r.chunks = []string{okDecode}
	default:
		r.chunks = []string{okPrefill}
	}
	return r, b.Reset
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)
	rooms = regexp.MustCompile(`"bootstrap_room":\d+`)
)

func plain(s string) string {
	return rooms.ReplaceAllString(uuids.ReplaceAllString(s, "<uuid>"), `"bootstrap_room":<int>`)
}

// want returns the recorded legs, with the headers that a connector sets.
func want(l *recorded) []received {
	var out []received
	for _, r := range l.Received {
		var head [][2]string
		for _, h := range r.Headers {
			if h[1] == "<uuid>" ||
				strings.EqualFold(h[0], RankHeader) && l.Connector == connector.Mooncake.Name {
				head = append(head, h)
			}
		}
		r.Headers = head
		out = append(out, r)
	}
	if connectorOf(l.Connector).AtOnce { // the legs are concurrent
		slices.SortStableFunc(out, func(a, b received) int { return strings.Compare(a.To, b.To) })
	}
	return out
}

// Every recorded request, leg for leg and byte for byte.
func TestRecordedSidecar(t *testing.T) {
	f, err := os.Open("testdata/sidecar.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	docs, err := os.ReadFile("../../../docs/parity-sidecar.md")
	if err != nil {
		t.Fatal(err)
	}
	same, left := 0, map[string]string{}
	for id, why := range deviations {
		left[id] = why
	}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l recorded
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		p := &player{t: t, line: l, c: config(t, &l)}
		if strings.HasPrefix(l.ID, "mooncake/") && !strings.Contains(l.ID, "bootstrap") && l.ID != "mooncake/chat" {
			// One process: asked once.
			p.c.Engines.Put("127.0.0.1:41204", []connector.Engine{{Rank: "0", ID: "eng-0"}}, 0)
		}
		p.play()
		for i := range p.seen {
			p.seen[i].Body = plain(p.seen[i].Body)
			for j := range p.seen[i].Headers {
				p.seen[i].Headers[j][1] = plain(p.seen[i].Headers[j][1])
			}
		}
		sorted := p.seen
		if connectorOf(l.Connector).AtOnce {
			slices.SortStableFunc(sorted, func(a, b received) int { return strings.Compare(a.To, b.To) })
		}
		diff := cmp.Diff(want(&l), sorted)
		if l.ClientGot.Status != p.got {
			diff += fmt.Sprintf("status: recorded %d, got %d\n", l.ClientGot.Status, p.got)
		}
		if got := strings.ReplaceAll(p.body.String(), ":50000-", ":<port>-"); l.ClientGot.Body != got {
			diff += cmp.Diff(l.ClientGot.Body, got)
		}
		why, deviates := deviations[l.ID]
		delete(left, l.ID)
		switch {
		case diff == "":
			same++
			if deviates && !strings.Contains(l.ID, "sampling") {
				t.Errorf("%s is listed as a deviation (%s) and is none", l.ID, why)
			}
		case !deviates:
			t.Errorf("%s: recorded (-), windtunnel (+)\n%s", l.ID, diff)
		case !strings.Contains(string(docs), "`"+l.ID+"`"):
			t.Errorf("docs/parity-sidecar.md does not list `%s`: %s", l.ID, why)
		}
	}
	for id := range left {
		t.Errorf("deviation %s: there is no such line", id)
	}
	t.Logf("%d lines the same, %d deviate on purpose", same, len(deviations))
}
