package epp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// preciseRun is one line of what the endpoint picker of llm-d-router v0.10.0
// did with KV events and requests.
type preciseRun struct {
	ID, Config, Mode string
	Endpoints        []struct{ Name, Address, Port string }
	Steps            []struct {
		KVEvent *struct {
			From, Topic string
			Seq         uint64
			Payload     string   `json:"payload_hex"`
			Frames      []string `json:"frames_hex"`
		} `json:"kv_event"`
		Request *struct {
			ID, Path, Body string
			Headers        map[string]string
		}
		TokenIDs  [][]uint32   `json:"token_ids"`
		Calls     []renderCall `json:"render_calls"`
		Scores    map[string]float64
		Picked    string
		Immediate []struct {
			Status  int
			Body    string
			Headers [][2]string `json:"set_headers"`
		} `json:"immediate_response"`
		SleepS  float64 `json:"sleep_s"`
		Metrics *struct {
			Values map[string]float64
		} `json:"epp_metrics"`
	}
}

// renderCall is one call to a renderer.
type renderCall struct{ Path, Body string }

// preciseRig is a picker with its index, fed over ZMQ, and a renderer.
type preciseRig struct {
	t      *testing.T
	run    *preciseRun
	k      *Picking
	reg    *prometheus.Registry
	pubs   map[string]zmq4.Socket
	marks  int
	mu     sync.Mutex
	heard  map[string]bool // models of markers
	tokens [][]uint32      // the renderer's next answer; nil is an error
	asked  []renderCall    // of the renderer since the request began
	picked string
	ahead  atomic.Int64 // nanoseconds by which the picker's clock is ahead
}

// Scores, refusals and metrics are those that were recorded, with events over
// real ZMQ sockets and tokens from a renderer over HTTP.
func TestRecordedPreciseScores(t *testing.T) {
	file, err := os.ReadFile("../../core/kv/testdata/precise-prefix.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(file))
	lines.Buffer(nil, 8<<20)
	played := 0
	defer func() {
		if err := lines.Err(); err != nil || played < 20 {
			t.Errorf("%d runs, %v: the recording is not whole", played, err)
		}
	}()
	for ; lines.Scan(); played++ {
		run := &preciseRun{}
		if err := json.Unmarshal(lines.Bytes(), run); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(run.ID, "replay-") {
			continue // their replies are core/kv's test and live/kvevents'
		}
		t.Run(run.ID, func(t *testing.T) {
			t.Parallel()
			rig := newPreciseRig(t, run)
			for i := range run.Steps {
				rig.step(i)
			}
		})
	}
}

func newPreciseRig(t *testing.T, run *preciseRun) *preciseRig {
	r := &preciseRig{t: t, run: run, reg: prometheus.NewRegistry(), pubs: map[string]zmq4.Socket{},
		heard: map[string]bool{}}
	render := httptest.NewServer(http.HandlerFunc(r.render))
	t.Cleanup(render.Close)
	text := strings.NewReplacer("http://127.0.0.1:41555", render.URL, "tcp://127.0.0.1:41558",
		"tcp://127.0.0.1:0").Replace(run.Config)
	var list []*picker.Endpoint
	where := map[string]string{}
	for _, e := range run.Endpoints {
		list = append(list, picker.NewEndpoint("default", e.Name, e.Address, e.Port, nil))
		where[e.Address] = "tcp://" + freeOn(t, e.Address)
	}
	r.k = picking(t, "", 0, func(o *PickingOptions) {
		real := o.Now
		o.Now = func() machine.Time { return real() + machine.Time(r.ahead.Load()) }
		o.Picker = pickerOf(t, text,
			picker.Options{Force: r.choose,
				Stopwatch: func() machine.Time { return machine.Time(time.Now().UnixNano()) }})
		o.EmitScores = true
		o.KV = KVOptions{Registry: r.reg, OnMessage: r.message,
			Publisher: func(e *picker.Endpoint) (string, string) { return where[e.Address], "" }}
	})
	r.k.SetEndpoints(list)
	var err error
	for _, e := range run.Endpoints {
		ctx, cancel := context.WithCancel(context.Background())
		pub := zmq4.NewPub(ctx)
		t.Cleanup(func() {
			_ = pub.Close()
			cancel()
		})
		if run.Mode == "discoverPods" {
			err = pub.Listen(where[e.Address])
		} else {
			err = pub.Dial(r.k.KVEndpoint(0))
		}
		if err != nil {
			t.Fatal(err)
		}
		r.pubs[e.Name] = pub
		r.flush(e.Name, true)
	}
	return r
}

func freeOn(t *testing.T, ip string) string {
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Skipf("there is no loopback address %s here: %v", ip, err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *preciseRig) choose(c *picker.Cycle, _ string, candidates []int32) []int32 {
	for _, i := range candidates {
		if c.State(i).HostPort() == r.picked {
			return []int32{i}
		}
	}
	return nil
}

func (r *preciseRig) message(_ string, m kvevents.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard[m.From.Model] = true
}

func (r *preciseRig) render(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.asked = append(r.asked, renderCall{q.URL.Path, string(body)})
	if r.tokens == nil {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	type ids struct {
		TokenIDs []uint32 `json:"token_ids"`
	}
	var many []ids
	for _, t := range r.tokens {
		many = append(many, ids{t})
	}
	var answer any = many
	if strings.Contains(q.URL.Path, "chat") {
		answer = many[0]
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// flush returns when all that a publisher has sent so far took effect.
func (r *preciseRig) flush(from string, first bool) {
	r.marks++
	mark := fmt.Sprintf("mark-%d", r.marks)
	payload := kvcodec.AppendBatch(nil, kv.Batch{}, kvcodec.ArrayForm)
	send := func() {
		if err := r.pubs[from].Send(
			zmq4.NewMsgFrom([]byte("kv@marker@"+mark), kv.EncodeSequence(0), payload)); err != nil {
			r.t.Fatal(err)
		}
	}
	send()
	eventually.Is(r.t, "events of "+from+" are heard", func() bool {
		r.mu.Lock()
		there := r.heard[mark]
		r.mu.Unlock()
		if !there && first { // the subscription may be on its way
			send()
		}
		return there
	})
}

func (r *preciseRig) step(i int) {
	s := &r.run.Steps[i]
	switch {
	case s.KVEvent != nil:
		e := s.KVEvent
		frames := [][]byte{[]byte(e.Topic), kv.EncodeSequence(e.Seq), fromHex(r.t, e.Payload)}
		if e.Frames != nil {
			frames = nil
			for _, f := range e.Frames {
				frames = append(frames, fromHex(r.t, f))
			}
		}
		if err := r.pubs[e.From].SendMulti(zmq4.NewMsgFrom(frames...)); err != nil {
			r.t.Fatal(err)
		}
		r.flush(e.From, false)
	case s.SleepS > 0:
		r.ahead.Add(int64(s.SleepS * float64(time.Second)))
	case s.Request != nil:
		r.request(i)
	case s.Metrics != nil:
		r.figures(i)
	}
}

func (r *preciseRig) request(i int) {
	s := &r.run.Steps[i]
	r.tokens, r.picked, r.asked = s.TokenIDs, s.Picked, nil
	x := r.k.testAsk(context.Background(),
		append(header.Of(":method", "POST", ":path", s.Request.Path, "x-request-id", s.Request.ID),
			header.FromMap(s.Request.Headers)...), s.Request.Body)
	defer x.leave()
	r.renders(i)
	if len(s.Immediate) > 0 {
		want := &s.Immediate[0]
		if x.answer == nil || x.answer.Status != want.Status || string(x.answer.Body) != want.Body ||
			len(x.answer.Set) != len(want.Headers) {
			r.t.Errorf("step %d, request %s: answered %+v, recorded %+v", i, s.Request.ID, x.answer, want)
		}
		return
	}
	if x.answer != nil {
		r.t.Errorf("step %d, request %s: refused: %s", i, s.Request.ID, x.answer.Body)
		return
	}
	m, _ := x.metadata[picker.NamespaceLB][picker.KeyScores].(map[string]any)
	if x.endpoint != s.Picked || len(m) != len(s.Scores) {
		r.t.Errorf("step %d, request %s: %s of %v, recorded %s of %v", i, s.Request.ID, x.endpoint, m, s.Picked,
			s.Scores)
	}
	for pod, want := range s.Scores {
		if got, _ := m[pod].(float64); math.Abs(got-want) > 1e-9 {
			r.t.Errorf("step %d, request %s: %s scores %v, recorded %v", i, s.Request.ID, pod, got, want)
		}
	}
}

// renders compares what the renderer was asked: the body as JSON, since the
// client's own bytes are sent.
func (r *preciseRig) renders(i int) {
	s := &r.run.Steps[i]
	same := len(r.asked) == len(s.Calls)
	for j := range min(len(r.asked), len(s.Calls)) {
		var got, want any
		bad := errors.Join(json.Unmarshal([]byte(r.asked[j].Body), &got),
			json.Unmarshal([]byte(s.Calls[j].Body), &want))
		same = same && bad == nil && r.asked[j].Path == s.Calls[j].Path && reflect.DeepEqual(got, want)
	}
	if !same {
		r.t.Errorf("step %d, request %s: asked the renderer %q, recorded %q", i, s.Request.ID, r.asked, s.Calls)
	}
}

// metrics compares those whose meaning is the same here.
func (r *preciseRig) figures(i int) {
	got := map[string]float64{}
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf("{%s=%q}", l.GetName(), l.GetValue())
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range r.run.Steps[i].Metrics.Values {
		if strings.Contains(name, "messages_received") {
			want += float64(r.marks) // with the markers
			if got[name] < want {
				r.t.Errorf("step %d: %s is %v, recorded %v", i, name, got[name], want)
			}
			continue
		}
		if have, ok := got[name]; !ok || have != want {
			r.t.Errorf("step %d: %s is %v (there: %v), recorded %v", i, name, have, ok, want)
		}
	}
}

func fromHex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
