package vllmgrpc

import (
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
		code codes.Code
	}{
		"empty":      {nil, codes.Internal},
		"short":      {framed[:len(framed)-1], codes.Internal},
		"two":        {append(append([]byte{}, framed...), framed...), codes.Internal},
		"compressed": {append([]byte{1}, framed[1:]...), codes.Unimplemented},
		"flag":       {append([]byte{7}, framed[1:]...), codes.Internal},
		"no message": {[]byte{0, 0, 0, 0, 1, 0xff}, codes.Internal},
	} {
		if err := ReadMessage(c.body, &got); status.Code(err) != c.code {
			t.Errorf("%s: expected %v, got %v", name, c.code, err)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for in, want := range map[string]time.Duration{"1H": time.Hour, "100m": 100 * time.Millisecond, "5S": 5 * time.Second,
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
	for in, want := range map[string]bool{"application/grpc": true, "application/grpc+proto": true, "application/grpc; x=y": true,
		"application/grpc+json": false, "application/grpc-web": false, "application/json": false, "": false} {
		if IsGRPC(in) != want {
			t.Errorf("%q: expected %v", in, want)
		}
	}
	if got := EscapeMessage("50% é\n"); got != "50%25 %C3%A9%0A" {
		t.Error(got)
	}
	for in, want := range map[int]codes.Code{400: codes.InvalidArgument, 404: codes.NotFound, 429: codes.ResourceExhausted, 503: codes.Unavailable, 500: codes.Internal, 418: codes.Unknown} {
		if got := CodeOf(in); got != want {
			t.Errorf("%d: expected %v, got %v", in, want, got)
		}
	}
}

// Whatever comes, reading it ends without a panic, and what was read can be
// written again.
func FuzzReadMessage(f *testing.F) {
	f.Add(AppendMessage(nil, &GenerateRequest{RequestId: "r", Input: &GenerateRequest_Tokenized{Tokenized: &TokenizedInput{InputIds: []uint32{1, 2}}}}))
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
