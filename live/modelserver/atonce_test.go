package modelserver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Of several that load one adapter at once, one does; the others are refused as by vLLM.
func TestAdaptersLoadOnce(t *testing.T) {
	t.Parallel()
	s := start(t, batched()).Server
	for i := range 100 {
		var loaded, refused atomic.Int32
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				w := httptest.NewRecorder()
				body := fmt.Sprintf(`{"lora_name":"a%d","lora_path":"/a"}`, i)
				r := httptest.NewRequest(http.MethodPost, "/v1/load_lora_adapter", strings.NewReader(body))
				<-begin
				s.loadAdapter(w, r)
				switch {
				case w.Code == http.StatusOK:
					loaded.Add(1)
				case w.Code == http.StatusBadRequest && strings.Contains(w.Body.String(), "already been loaded"):
					refused.Add(1)
				}
			})
		}
		close(begin)
		if all.Wait(); loaded.Load() != 1 || refused.Load() != 7 {
			t.Fatalf("a%d: %d loaded and %d refused it, of 8", i, loaded.Load(), refused.Load())
		}
	}
}

// A server that cannot come back holds no address, and comes back once it can.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	o := batched()
	o.ListenAlso = "127.0.0.1:0"
	b := start(t, o)
	also := b.also.Addr().String()
	answers := func() {
		t.Helper()
		for _, at := range []string{b.Address(), also} {
			resp, err := b.Get("http://" + at + "/v1/models")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	answers()
	b.Leave(t.Context())
	taken, err := net.Listen("tcp", also)
	if err != nil {
		t.Fatal(err)
	}
	free := func() {
		t.Helper()
		l, err := net.Listen("tcp", b.Address())
		if err != nil {
			t.Fatal("an address is held:", err)
		}
		l.Close()
	}
	if err := b.Join(); err == nil {
		t.Error("it listens where somebody else does")
	}
	free()
	taken.Close()
	if err := b.Join(); err != nil {
		t.Fatal(err)
	}
	answers()

	f, err := New(Options{Servers: []ServerOptions{batched()}})
	if err == nil {
		err = f.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Stop(t.Context())
	b = &bench{Server: f.Servers()[0]}
	if err := b.Join(); err == nil {
		t.Error("an engine that has ended began anew")
	}
	free()
}

// midway runs a function when the second half of a text is read.
type midway struct {
	io.Reader
	run func()
}

func (m *midway) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p[:min(len(p), 8)])
	if run := m.run; n > 0 && run != nil {
		m.run = nil
		run()
	}
	return n, err
}

// A change of a server's configuration does not undo one that comes meanwhile, and
// one that is refused changes nothing.
func TestConfigChangesAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, batched()).Server
	ask := func(body io.Reader) (int, string) {
		w := httptest.NewRecorder()
		s.adminConfig(w, httptest.NewRequest(http.MethodPost, "/admin/config", body))
		return w.Code, w.Body.String()
	}
	slow := &midway{Reader: strings.NewReader(`{"metrics-delay":"3s"}`),
		run: func() { ask(strings.NewReader(`{"failure-injection-rate":7}`)) }}
	if code, text := ask(slow); code != 200 || !strings.Contains(text, `"failure-injection-rate":7`) ||
		!strings.Contains(text, `"3s"`) {
		t.Error(code, text)
	}
	before := s.injection()
	for _, bad := range []string{
		`{"failure-injection-rate":9,"time-to-first-token":"soon"}`, `{"failure-injection-rate":9,"fault":"none such"}`,
		`{"fake-metrics":{"running-requests":3},"time-to-first-token":"soon"}`,
		`{"failure-injection-rate":9,"fake-metrics":3}`,
	} {
		if code, text := ask(strings.NewReader(bad)); code != 400 {
			t.Errorf("%s: %d %s", bad, code, text)
		}
	}
	if now := s.injection(); fmt.Sprint(now) != fmt.Sprint(before) || s.fake.Load() != nil {
		t.Errorf("from %+v to %+v, %+v", before, now, s.fake.Load())
	}
}
