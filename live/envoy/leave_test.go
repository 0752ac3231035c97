//go:build unix

package envoy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The stages of a held request at which a picker can go away.
const (
	atHeaders       = "at the headers"
	atBodyEnd       = "at the body's end"
	whileHeld       = "while held"
	afterFirstToken = "after the first token"
)

// The picker goes away in the middle of a request, by a crash or by an error,
// at every stage. In both failure modes the client gets an error, at once, and
// the model server never takes what it has for a whole request. (A picker that
// ends its stream without an error is another matter: see docs/envoy.md.)
func TestPickerLeaves(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		for _, stage := range []string{atHeaders, atBodyEnd, whileHeld, afterFirstToken} {
			for _, crash := range []bool{true, false} {
				t.Run(fmt.Sprintf("open=%v, %s, crash=%v", open, stage, crash), func(t *testing.T) {
					t.Parallel()
					leaves(t, open, stage, crash)
				})
			}
		}
	}
}

func leaves(t *testing.T, open bool, stage string, crash bool) {
	var whole atomic.Int64 // requests that the server took for whole
	begun := make(chan struct{}, 1)
	server := (&fakeServer{handle: func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		if _, err := io.ReadFull(r.Body, make([]byte, 8)); err != nil {
			return
		}
		begun <- struct{}{}
		if stage == afterFirstToken {
			io.WriteString(w, "first ")
			rc.Flush()
		}
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			whole.Add(1)
		}
	}}).start(t)

	picker := &fakePicker{destination: func() string { return server.addr }}
	ctx, release := context.WithCancel(t.Context())
	defer release()
	leave := func() error {
		if !crash {
			return status.Error(codes.Internal, "a bug")
		}
		go picker.server.Stop() // every connection is cut
		<-ctx.Done()
		return nil
	}
	picker.hook = func(s extprocv3.ExternalProcessor_ProcessServer) error {
		for {
			m, err := s.Recv()
			switch {
			case err != nil:
				return err
			case m.GetRequestHeaders() != nil && stage == atHeaders:
				return leave()
			case m.GetRequestBody().GetEndOfStream() && stage == atBodyEnd:
				return leave()
			case m.GetRequestBody().GetEndOfStream():
				if err := picker.sendHeaders(s); err != nil {
					return err
				}
				if err := sendRequestBody(s, []byte("part one"), false); err != nil {
					return err
				}
				<-begun
				if stage == whileHeld {
					return leave()
				}
			case m.GetResponseHeaders() != nil:
				err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
					ResponseHeaders: &extprocv3.HeadersResponse{}}})
				if err != nil {
					return err
				}
			case m.GetResponseBody() != nil:
				return leave()
			}
		}
	}
	picker.start(t)

	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	c.Pools[0].Picker.FailOpen = open
	c.Pools[0].Endpoints = []string{server.addr}
	p := startEnvoy(t, c)
	cl := newClient(t, p, false)
	cl.http.Timeout = time.Minute
	code, body, err := cl.try(strings.NewReader("part one"))
	switch {
	case code == http.StatusServiceUnavailable && err == nil:
	case code == http.StatusOK && err != nil && stage == afterFirstToken:
	default:
		t.Errorf("got %d %q %v, want 503 (or a 200 broken off after the first token)", code, body, err)
	}
	if os.IsTimeout(err) {
		t.Errorf("a hang: %v", err)
	}
	idle(t, p)
	if n := whole.Load(); n != 0 {
		t.Errorf("the model server took %d requests for whole", n)
	}
}
