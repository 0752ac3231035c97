package sidecar

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// recordedLine is a line of core/sidecar/disagg's recordings: one request at the real
// sidecar, what the servers behind it received, and what the client got.
type recordedLine struct {
	ID, Connector string
	Flags         []string
	Env           map[string]string
	Request       struct {
		Method, Path string
		Headers      [][2]string
		Body         string
	}
	Servers      map[string]json.RawMessage
	NotListening []string `json:"not_listening"`
	Received     []recordedLeg
	Order        []string
	ClientGot    struct {
		Status  int
		Headers [][2]string
		Body    string
	} `json:"client_got"`
}

type recordedLeg struct {
	To, Method, Path string
	Headers          [][2]string
	Body             string
}

// recordedServer is how a server answers; without any of it in its usual way.
type recordedServer struct {
	Status     int
	Body       json.RawMessage
	Headers    map[string]string
	Delay      float64
	Reset      bool
	SSE        bool
	SSEBody    []string         `json:"sse_body"`
	PerRequest []recordedServer `json:"per_request"`
}

const (
	recordedDecode = `{"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": ` +
		`{"role": "assistant", "content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, ` +
		`"completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 1}}}`
	recordedPrefill = `{"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": ` +
		`{"role": "assistant", "content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, ` +
		`"completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 4}}, ` +
		`"kv_transfer_params": {"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [1,` +
		` 2], "remote_engine_id": "e-1", "remote_host": "127.0.0.1", "remote_port": 5600, "tp_size": 1}}`
)

var recordedStream = []string{
	`data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant",` +
		`"content":"h"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"i"},` +
		`"finish_reason":"stop"}]}` + "\n\n",
	`data: {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"prompt_tokens": 5, ` +
		`"completion_tokens": 2, "total_tokens": 7}}` + "\n\n",
	"data: [DONE]\n\n",
}

// recordedPorts are those of the recording; 41209 is nobody's.
var recordedPorts = map[string]string{"sidecar": "41201", "decode": "41203", "prefill-a": "41204", "prefill-b": "41205",
	"nobody": "41209", "bootstrap": "41298"}

// stage is a sidecar among the recorded servers, which play one line after the
// other.
type stage struct {
	t     *testing.T
	ports map[string]string // by name, as they are here
	to    *strings.Replacer // from the recorded ports
	back  *strings.Replacer

	mu       sync.Mutex
	line     *recordedLine
	calls    map[string]int
	received []recordedLeg
	order    []string
	all      chan struct{} // as many legs as were recorded have arrived
	answered chan struct{} // the client has its answer
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, ports: map[string]string{"nobody": deafPort(t)}}
	for _, name := range []string{"decode", "prefill-a", "prefill-b", "bootstrap"} {
		server := httptest.NewServer(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(name, w, r) }))
		t.Cleanup(server.Close)
		_, s.ports[name], _ = net.SplitHostPort(server.Listener.Addr().String())
	}
	return s
}

// deafPort is a port that is taken, and at which nobody listens.
func deafPort(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(at.(*syscall.SockaddrInet4).Port)
}

// start starts a sidecar as a line's was. It is the line's own where a server
// was not there.
func (s *stage) start(l *recordedLine) *rig {
	at := func(name string) string {
		if slices.Contains(l.NotListening, name) {
			name = "nobody"
		}
		return s.ports[name]
	}
	r := start(s.t, func(_ *rig, o *Options) {
		*o = Options{Listen: o.Listen, Decoder: "127.0.0.1:" + at("decode"), PlainHeaders: true, Seed: 7, Log: o.Log,
			Recorder: o.Recorder,
			Disagg:   disagg.Config{Connector: l.connector()}}
		o.Disagg.MeetingPort, _ = strconv.Atoi(
			map[*connector.Connector]string{connector.Mooncake: at("bootstrap"),
				connector.SGLang: l.Env["SGLANG_BOOTSTRAP_PORT"]}[l.connector()])
		for i := 0; i < len(l.Flags); i++ {
			next := func() (n int) { i++; n, _ = strconv.Atoi(l.Flags[i]); return n }
			switch l.Flags[i] {
			case "--kv-connector":
				i++
			case "--prefill-max-retries":
				o.Disagg.Retries = next()
			case "--decode-chunk-size":
				o.Disagg.ChunkTokens = next()
			case "--enable-p2p-pull":
				o.Disagg.P2PPull = true
			case "--enable-prefiller-sampling":
				o.Disagg.Sample = true
			default:
				s.t.Fatalf("flag %s is not played", l.Flags[i])
			}
		}
	})
	_, s.ports["sidecar"], _ = net.SplitHostPort(r.Addr())
	var to, back []string
	for name, recorded := range recordedPorts {
		to = append(to, recorded, at(name))
		if name != "nobody" || len(l.NotListening) == 0 {
			back = append(back, at(name), recorded)
		}
	}
	s.to, s.back = strings.NewReplacer(to...), strings.NewReplacer(back...)
	return r
}

// connector is the one that was recorded; nil is the default.
func (l *recordedLine) connector() *connector.Connector {
	c, _ := connector.Named(l.Connector)
	return c
}

func (s *stage) serve(name string, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	var b recordedServer
	if raw, ok := s.line.Servers[name]; ok {
		if err := json.Unmarshal(raw, &b); err != nil {
			s.t.Error(err)
		}
	}
	if len(b.PerRequest) > 0 {
		b = b.PerRequest[min(s.calls[name], len(b.PerRequest)-1)]
	}
	s.calls[name]++
	head := headers(r.Header, "Host", r.Host)
	s.received = append(s.received, recordedLeg{name, r.Method, r.URL.RequestURI(), head, string(body)})
	s.order = append(s.order, name+" received")
	if n := len(s.received); n == len(s.line.Received) && name != "bootstrap" {
		close(s.all)
	}
	all, answered, concurrent := s.all, s.answered, s.line.connector().AtOnce
	s.mu.Unlock()
	switch {
	case concurrent && b.Delay > 0: // no answer of another leg is held back for it
		<-answered
	case concurrent && name == "decode": // an answer of 500 ends the other leg
		select {
		case <-all:
		case <-time.After(patience):
		}
	}
	s.mu.Lock()
	what := " answers"
	if b.Reset {
		what = " resets"
	}
	s.order = append(s.order, name+what)
	s.mu.Unlock()
	s.answer(name, b, w, r, body)
}

func (s *stage) answer(name string, b recordedServer, w http.ResponseWriter, r *http.Request, body []byte) {
	if b.Reset {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
		return
	}
	var text string
	var chunks []string
	switch {
	case b.SSEBody != nil:
		chunks = b.SSEBody
	case b.Body != nil && json.Unmarshal(b.Body, &text) != nil:
		_ = json.Unmarshal(b.Body, &chunks)
	case b.Body != nil:
	case name == "bootstrap":
		text = `{"0":{"engine_id":"eng-0"}}`
	case r.URL.Path == "/v1/models":
		text = `{"object":"list","data":[{"id":"m"}]}`
	case r.Method == http.MethodGet:
		text = "decode " + r.URL.Path + "\n"
	case name == "decode" && bytes.Contains(body, []byte(`"stream":true`)):
		chunks = recordedStream
	case name == "decode":
		text = recordedDecode
	default:
		text = recordedPrefill
	}
	w.Header()["X-Server"] = []string{name}
	w.Header()["Date"] = nil
	w.Header().Set("Content-Type", "application/json")
	if chunks != nil {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
	for k, v := range b.Headers {
		w.Header().Set(k, v)
	}
	w.WriteHeader(cmp.Or(b.Status, http.StatusOK))
	_, _ = io.WriteString(w, text)
	for _, c := range chunks {
		_, _ = io.WriteString(w, s.to.Replace(c))
		w.(http.Flusher).Flush()
	}
}

// headers are those of a message, with some more, in the order of their names.
// What order they have on the wire is net/http's affair.
func headers(h http.Header, more ...string) (list [][2]string) {
	for name, values := range h {
		for _, v := range values {
			list = append(list, [2]string{name, v})
		}
	}
	for i := 0; i < len(more); i += 2 {
		list = append(list, [2]string{more[i], more[i+1]})
	}
	return sortedHeaders(list)
}

func sortedHeaders(list [][2]string) [][2]string {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	return list
}

// plain returns a text with placeholders for its random parts, and with the recorded ports.
func (s *stage) plain(text string) string {
	text = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).ReplaceAllString(
		text, "<uuid>")
	text = regexp.MustCompile(`"bootstrap_room":\d+`).ReplaceAllString(text, `"bootstrap_room":<int>`)
	return regexp.MustCompile(`127\.0\.0\.1:\d+-(>|\\u003e)`).ReplaceAllString(s.back.Replace(text),
		"127.0.0.1:<port>-$1")
}

// play sends a line's request, and returns the line as it would have been
// recorded here.
func (s *stage) play(r *rig, l *recordedLine) (got recordedLine) {
	s.mu.Lock()
	s.line, s.calls, s.received, s.order, s.all, s.answered = l, map[string]int{}, nil, nil, make(chan struct{}),
		make(chan struct{})
	s.mu.Unlock()
	q, err := http.NewRequest(l.Request.Method, "http://"+r.Addr()+l.Request.Path,
		strings.NewReader(s.to.Replace(l.Request.Body)))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header["User-Agent"] = []string{""} // none
	for _, h := range l.Request.Headers {
		name := http.CanonicalHeaderKey(h[0])
		if name == "User-Agent" {
			delete(q.Header, name)
		}
		q.Header[name] = append(q.Header[name], s.to.Replace(h[1]))
	}
	r.client.Transport.(*http.Transport).DisableCompression = true
	resp, err := r.client.Do(q)
	if err != nil {
		s.t.Fatal(l.ID, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(l.ID, err)
	}
	resp.Body.Close()
	close(s.answered)
	// Legs that the client's answer did not wait for.
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n, answers := len(s.received), len(s.order)
		s.mu.Unlock()
		if r.InFlight() == 0 && n >= len(l.Received) && answers >= len(l.Order) || time.Now().After(end) {
			break
		}
	}
	more := []string{}
	for _, v := range resp.TransferEncoding {
		more = append(more, "Transfer-Encoding", v)
	}
	delete(resp.Header, "Date")
	got.ClientGot.Status, got.ClientGot.Headers, got.ClientGot.Body = resp.StatusCode, headers(resp.Header, more...),
		s.plain(string(body))
	s.mu.Lock()
	defer s.mu.Unlock()
	got.Received, got.Order = slices.Clone(s.received), slices.Clone(s.order)
	for i := range got.Received {
		leg := &got.Received[i]
		length := strconv.Itoa(len(leg.Body))
		leg.Body = s.plain(leg.Body)
		for j, h := range leg.Headers {
			if leg.Headers[j][1] = s.plain(h[1]); h == [2]string{"Content-Length", length} {
				leg.Headers[j][1] = lengthOf(leg.Body, length)
			}
		}
	}
	return got
}

// lengthOf is a body's length as it is compared: a number that is drawn may have
// one digit less.
func lengthOf(body, length string) string {
	if strings.Contains(body, "<int>") {
		return "<length>"
	}
	return length
}

// otherHeaders returns the headers of answers that differ on purpose; the rows of docs/parity-sidecar.md give the
// reasons.
func otherHeaders(l *recordedLine, got [][2]string) (want, have [][2]string) {
	for _, h := range sortedHeaders(l.ClientGot.Headers) {
		if h == [2]string{"Content-Type", "text/plain; charset=utf-8"} &&
			strings.HasPrefix(l.ClientGot.Body, `{"object":"error"`) {
			h[1] = "application/json" // content type of error answers of its own
		}
		want = append(want, h)
	}
	chunked := slices.Contains(l.Flags, "--decode-chunk-size")
	for _, h := range got {
		// A prefill leg without an answer; the head of a chunked answer.
		if h[0] != "X-Prefill-Error" && !(chunked && h[0] == "X-Server" && !slices.Contains(want, h)) {
			have = append(have, h)
		}
	}
	return want, have
}

// Every recorded request on the wire: what each server receives, with all
// headers, in which order, and what the client gets, with all headers.
func TestRecordingsOnTheWire(t *testing.T) {
	docs, err := os.ReadFile("../../docs/parity-sidecar.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../../core/sidecar/disagg/testdata/sidecar.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	groups, names := map[string][]recordedLine{}, []string{}
	for in := bufio.NewScanner(bytes.NewReader(file)); in.Scan(); {
		var l recordedLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		name := strings.Join(l.Flags, " ") + fmt.Sprint(l.Env, l.NotListening)
		if strings.HasPrefix(l.ID, "mooncake/bootstrap") {
			name = l.ID // a bootstrap server is asked once
		}
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], l)
	}
	if len(groups) < 10 {
		t.Fatalf("%d kinds of sidecars", len(groups))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			r := s.start(&groups[name][0])
			for _, l := range groups[name] {
				got := s.play(r, &l)
				diff := differs(l, got)
				switch listed := strings.Contains(string(docs), "`"+l.ID+"`"); {
				case listed && diff == "" && !strings.Contains(l.ID, "/sampling"):
					t.Errorf("%s is listed in docs/parity-sidecar.md, and does not differ", l.ID)
				case !listed && diff != "":
					t.Errorf("%s: recorded (-), got (+)\n%s", l.ID, diff)
				}
			}
		})
	}
}

// differs is how a line went otherwise than it was recorded.
func differs(want, got recordedLine) (diff string) {
	add := func(what, d string) {
		if d != "" {
			diff += what + ":\n" + d
		}
	}
	want.Received = slices.Clone(want.Received)
	if want.connector().AtOnce {
		for _, legs := range [][]recordedLeg{want.Received, got.Received} {
			slices.SortStableFunc(legs, func(a, b recordedLeg) int { return cmp.Compare(a.To, b.To) })
		}
	} else {
		add("order of legs", gocmp.Diff(want.Order, got.Order, cmpopts.EquateEmpty()))
	}
	for i := range want.Received {
		leg := &want.Received[i]
		leg.Headers = sortedHeaders(leg.Headers)
		for j, h := range leg.Headers {
			if h[0] == "Content-Length" {
				leg.Headers[j][1] = lengthOf(leg.Body, h[1])
			}
		}
	}
	add("legs", gocmp.Diff(want.Received, got.Received, cmpopts.EquateEmpty()))
	add("status", gocmp.Diff(want.ClientGot.Status, got.ClientGot.Status))
	add("body", gocmp.Diff(want.ClientGot.Body, got.ClientGot.Body))
	add("client's headers", gocmp.Diff(otherHeaders(&want, got.ClientGot.Headers)))
	return diff
}
