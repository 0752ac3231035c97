//go:build unix

package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/internal/child"
)

const accessSample = `{"attempts":2,"bytes_in":8,"bytes_out":24,"cluster":"pool-default","details":"via_upstream",` +
	`"duration_ms":36,"ext_proc_request_us":"24977","ext_proc_response_us":null,"flags":"URX,UF",` +
	`"method":"POST","path":"/v1/completions","protocol":"HTTP/1.1","request_id":"abc","request_read_us":779,` +
	`"response_first_us":36512,` +
	`"response_last_us":36908,"route":"0-default","start":"1795220171.224651036","status":200,"termination":null,` +
	`"upstream":"127.0.0.1:36805",` +
	`"upstream_begun_us":25325,"upstream_connected_us":25231,"upstream_failure":null,"upstream_first_us":35840,` +
	`"upstream_last_us":36675,"upstream_sent_us":null}`

func TestParseAccessLine(t *testing.T) {
	t.Parallel()
	got, err := ParseAccessLine([]byte(accessSample))
	if err != nil {
		t.Fatal(err)
	}
	want := AccessRecord{
		Start: time.Unix(1795220171, 224651036), RequestID: "abc", Method: "POST", Path: "/v1/completions",
		Protocol: "HTTP/1.1",
		Status:   200, Details: "via_upstream", Flags: []string{"URX", "UF"}, Route: "0-default",
		Cluster:  "pool-default",
		Upstream: "127.0.0.1:36805", Attempts: 2, BytesIn: 8, BytesOut: 24, Took: 36 * time.Millisecond,
		Timeline: Timeline{
			RequestRead: 779 * time.Microsecond, UpstreamConnected: 25231 * time.Microsecond,
			UpstreamBegun: 25325 * time.Microsecond,
			UpstreamSent:  NotReached, UpstreamFirst: 35840 * time.Microsecond, UpstreamLast: 36675 * time.Microsecond,
			ResponseFirst: 36512 * time.Microsecond, ResponseLast: 36908 * time.Microsecond,
			PickerRequest: 24977 * time.Microsecond, PickerResponse: NotReached, RouterRequest: NotReached,
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "{", "[]", `{"start":"x"}`, `{"start":"1.-5"}`, `{"start":"1","status":"two"}`} {
		if _, err := ParseAccessLine([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a record", bad)
		}
	}
}

// A line that is written in pieces comes out whole, and after the end of the
// writer comes the end of the log.
func TestAccessLogTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	program, err := child.Run(exec.Command("sleep", "600"), filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Kill()
	p := &Process{Config: Config{AccessLog: path}, process: program}
	tail, err := p.FollowAccessLog()
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 3*flushInterval)
	defer cancel()
	if _, err := tail.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("an empty log gives %v", err)
	}
	io.WriteString(f, accessSample[:50])
	ctx, cancel = context.WithTimeout(t.Context(), 3*flushInterval)
	defer cancel()
	if r, err := tail.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("half a line gives %v %v", r, err)
	}
	long := strings.Replace(accessSample, `"abc"`, `"`+strings.Repeat("x", 100_000)+`"`, 1)
	io.WriteString(f, accessSample[50:]+"\nnot json\n"+long+"\n")
	for i, id := range []int{3, -1, 100_000} {
		r, err := tail.Next(t.Context())
		if (err != nil) != (id < 0) || id >= 0 && len(r.RequestID) != id {
			t.Fatalf("line %d: %d, %v", i, len(r.RequestID), err)
		}
	}
	io.WriteString(f, accessSample+"\n")
	program.Kill()
	if _, err := tail.Next(t.Context()); err != nil {
		t.Fatalf("the last line is lost: %v", err)
	}
	if _, err := tail.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v, want io.EOF", err)
	}
}

// Every request of a real run is in the log when Stop returns.
func TestAccessLogWhole(t *testing.T) {
	t.Parallel()
	p := startEnvoy(t, onePool())
	cl := newClient(t, p, false)
	const n = 20
	for range n {
		cl.post(strings.NewReader("x")) // 503: there is no picker
	}
	tail, err := p.FollowAccessLog()
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		r, err := tail.Next(t.Context())
		if errors.Is(err, io.EOF) {
			if i != n {
				t.Errorf("%d records, want %d", i, n)
			}
			return
		}
		if err != nil || r.Status != 503 || r.RequestID == "" || r.Timeline.ResponseLast <= 0 {
			t.Fatalf("%+v %v", r, err)
		}
	}
}

func FuzzParseAccessLine(f *testing.F) {
	f.Add([]byte(accessSample))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseAccessLine(line)
		switch {
		case err != nil:
			if d := cmp.Diff(AccessRecord{}, r); d != "" {
				t.Errorf("%q is refused (%v), and read in part: %s", line, err, d)
			}
		case !json.Valid(line) || r.RequestID == "-":
			t.Errorf("%q gives %+v", line, r)
		}
	})
}
