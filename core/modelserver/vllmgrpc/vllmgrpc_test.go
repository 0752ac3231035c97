package vllmgrpc

import (
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

func TestMessages(t *testing.T) {
	m := &GenerateRequest{RequestId: "r", Stream: true, Input: &GenerateRequest_Text{Text: "hello"}}
	framed := AppendMessage([]byte("before"), m)[len("before"):]
	var got GenerateRequest
	if err := ReadMessage(framed, &got); err != nil || !proto.Equal(m, &got) {
		t.Fatal(&got, err)
	}
	for name, c := range map[string]struct {
		body []byte
		code Code
	}{
		"empty":      {nil, Internal},
		"short":      {framed[:len(framed)-1], Internal},
		"two":        {append(append([]byte{}, framed...), framed...), Internal},
		"compressed": {append([]byte{1}, framed[1:]...), Unimplemented},
		"flag":       {append([]byte{7}, framed[1:]...), Internal},
		"no message": {[]byte{0, 0, 0, 0, 1, 0xff}, Internal},
	} {
		var bad *Error
		if err := ReadMessage(c.body, &got); !errors.As(err, &bad) || bad.Code != c.code {
			t.Errorf("%s: expected %v, got %v", name, c.code, err)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for in, want := range map[string]time.Duration{"1H": time.Hour, "100m": 100 * time.Millisecond,
		"5S": 5 * time.Second,
		"2M": 2 * time.Minute, "99999999H": math.MaxInt64, "7u": 7 * time.Microsecond, "8n": 8} {
		if got, err := ParseTimeout(in); err != nil || got != want {
			t.Errorf("%s: expected %v, got %v, %v", in, want, got, err)
		}
	}
	for _, in := range []string{"", "1", "S", "-1S", "1s", "123456789S", "1.5S", "+1S"} {
		if d, err := ParseTimeout(in); err == nil {
			t.Errorf("%q: expected an error, got %v", in, d)
		}
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]bool{"application/grpc": true, "application/grpc+proto": true,
		"application/grpc; x=y": true,
		"application/grpc+json": false, "application/grpc-web": false, "application/json": false, "": false} {
		if IsGRPC(in) != want {
			t.Errorf("%q: expected %v", in, want)
		}
	}
	if got := EscapeMessage("50% é\n"); got != "50%25 %C3%A9%0A" {
		t.Error(got)
	}
	for in, want := range map[int]Code{400: InvalidArgument, 404: NotFound, 429: ResourceExhausted, 503: Unavailable,
		500: Internal, 418: Unknown} {
		if got := CodeOf(in); got != want {
			t.Errorf("%d: expected %v, got %v", in, want, got)
		}
	}
}

// HTTP statuses convert to codes and back; Envoy's codes are coarser.
func TestCodes(t *testing.T) {
	for _, status := range []int{200, 400, 401, 403, 404, 429, 500, 501, 503, 504} {
		if got := HTTPOf(CodeOf(status)); got != status {
			t.Errorf("%d: %d is %d", status, CodeOf(status), got)
		}
	}
	for status, want := range map[int]Code{400: Internal, 401: Unauthenticated, 403: PermissionDenied,
		404: Unimplemented, 413: Unknown, 429: Unavailable, 502: Unavailable, 503: Unavailable, 504: Unavailable} {
		if got := EnvoyCodeOf(status); got != want {
			t.Errorf("%d: expected %d, got %d", status, want, got)
		}
	}
	if code, message, ok := ReadStatus("14", EscapeMessage("50% é")); code != Unavailable || message != "50% é" || !ok {
		t.Error(code, message, ok)
	}
	if code, message, ok := ReadStatus("14", "100%"); code != Unavailable || message != "100%" || !ok {
		t.Error(code, message, ok)
	}
	if _, _, ok := ReadStatus("", ""); ok {
		t.Error("a status of nothing")
	}
}

// Whatever comes, reading it ends without a panic, and what was read can be
// written again.
func FuzzReadMessage(f *testing.F) {
	f.Add(AppendMessage(nil,
		&GenerateRequest{RequestId: "r",
			Input: &GenerateRequest_Tokenized{Tokenized: &TokenizedInput{InputIds: []uint32{1, 2}}}}))
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		var m, again GenerateRequest
		if ReadMessage(body, &m) != nil {
			return
		}
		if err := ReadMessage(AppendMessage(nil, &m), &again); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseTimeout(f *testing.F) {
	f.Add("10S")
	f.Fuzz(func(t *testing.T, v string) {
		if d, err := ParseTimeout(v); err == nil && d < 0 {
			t.Fatal(d)
		}
	})
}
