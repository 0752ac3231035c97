package modelserver

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
)

// silence is a side channel that takes connections and never answers. asked
// gets one value for each connection that began to ask.
func silence(t *testing.T) (port int, asked <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 16)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { // until the asker hangs up
				defer conn.Close()
				b := make([]byte, 4096)
				if _, err := conn.Read(b); err == nil {
					heard <- struct{}{}
				}
				for err == nil {
					_, err = conn.Read(b)
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().(*net.TCPAddr).Port, heard
}

// prefilledBy prefills and names another side channel as the holder.
func (p *pair) prefilledBy(port int) string {
	p.t.Helper()
	pre := p.ask(p.prefill, `{"prompt":"Some long prompt that is prefilled elsewhere","max_tokens":1,`+remoteDecode+`}`)
	var m map[string]any
	if err := json.Unmarshal(pre.KV, &m); err != nil {
		p.t.Fatalf("%v %s", err, pre.body)
	}
	m["remote_port"] = port
	raw, err := json.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	return `{"prompt":"Some long prompt that is prefilled elsewhere","max_tokens":4,"kv_transfer_params":` +
		string(raw) + `}`
}

// released waits until no engine has a request, or a block for anybody.
func (p *pair) released() {
	p.t.Helper()
	p.waitFor("everything is free", func() bool {
		for _, s := range p.fleet.Servers() {
			x, _ := s.look()
			if x.KVBlocks != 0 || x.Engine.Running+x.Engine.Waiting != 0 {
				return false
			}
		}
		busy := 0
		p.decode.engine.With(func(machine.Time) { busy = p.decode.engine.Core.Busy() })
		return p.held() == 0 && busy == 0
	})
}

func quietPair(t *testing.T, policy engine.KVLoadFailure, limit time.Duration) *pair {
	return startPair(t, func(o *ServerOptions) {
		*o = batched()
		o.PeerTimeout = limit
		o.Engine.BlockSize, o.Engine.KVLoadFailure, o.Engine.KVHoldTimeout = 16, policy, 100*machine.Millisecond
	})
}

// A holder that takes the question and never answers: the transfer times out,
// the policy decides what becomes of the request, and neither server keeps a
// block for it.
func TestSilentSideChannel(t *testing.T) {
	t.Parallel()
	for policy, want := range map[engine.KVLoadFailure]int{engine.KVLoadFail: 500, engine.KVLoadRecompute: 200} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			p := quietPair(t, policy, 2*time.Second)
			port, asked := silence(t)
			a := p.ask(p.decode, p.prefilledBy(port))
			if a.status != want {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if want == 200 && (len(a.Choices) != 1 || a.Choices[0].FinishReason != "length") {
				t.Fatalf("not the whole answer: %s", a.body)
			}
			select {
			case <-asked:
			default:
				t.Fatal("nobody asked")
			}
			p.released()
			if said(t, p.decode, saidFailed) != 1 || said(t, p.decode, saidMoved) != 0 {
				t.Errorf("%v transfers failed and %v succeeded, expected one that failed",
					said(t, p.decode, saidFailed), said(t, p.decode, saidMoved))
			}
			if said(t, p.prefill, saidExpired) != 1 {
				t.Errorf("%v handles expired, expected the one that nobody fetched", said(t, p.prefill, saidExpired))
			}
			if a := p.ask(p.decode, `{"prompt":"the next","max_tokens":2}`); a.status != 200 {
				t.Errorf("the next request: %d %s", a.status, a.body)
			}
		})
	}
}

// The client does not wait for a silent holder: when it leaves, the question
// ends at once and not only when its time is up.
func TestClientLeavesSilentSideChannel(t *testing.T) {
	t.Parallel()
	p := quietPair(t, engine.KVLoadFail, time.Hour)
	port, asked := silence(t)
	body := p.prefilledBy(port)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.decode.URL()+"/v1/completions",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	<-asked
	leave()
	if err := <-done; err == nil {
		t.Error("it was answered")
	}
	p.released()
	if said(t, p.decode, saidFailed) != 0 {
		t.Errorf("%v transfers failed; nobody waited for it", said(t, p.decode, saidFailed))
	}
}
