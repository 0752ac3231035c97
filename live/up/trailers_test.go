package up

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// What is known only at the end of a streamed answer comes behind it: in trailers,
// through every hop, to a client that says that it reads them, and to no other.
func TestStreamsEndWithTrailers(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+headersPool()+leadTo("/v1", pool("one"))))
	for _, te := range []string{"trailers", ""} {
		for _, http2 := range []bool{false, true} {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(!http2)
			transport.Protocols.SetUnencryptedHTTP2(http2)
			req, err := http.NewRequest(http.MethodPost, r.url(80)+"/v1/chat/completions",
				strings.NewReader(`{"model":"one","max_tokens":5,"stream":true,"messages":[{"role":"user",`+
					`"content":"hi"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if te != "" {
				req.Header.Set("TE", te)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			transport.CloseIdleConnections()
			if err != nil || resp.StatusCode != http.StatusOK || !bytes.HasSuffix(body, []byte("[DONE]\n\n")) {
				t.Fatalf("%d %v: %s", resp.StatusCode, err, body)
			}
			for _, name := range []string{"X-Decode-Time-Ms", "X-Total-Time-Ms", "X-Tokens-Generated",
				"X-Tokens-Per-Second"} {
				v := resp.Trailer.Get(name)
				if _, err := strconv.ParseFloat(v, 64); (err == nil) != (te != "") {
					t.Errorf("TE %q, HTTP/2 %v: the trailer %s is %q; headers %v, trailers %v", te, http2, name, v,
						resp.Header, resp.Trailer)
				}
			}
		}
	}
}
