// Package wire reads the bodies of a model server's requests and writes its
// answers, as vLLM's HTTP server does.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Header returns a header's first value. name must be in the canonical form; http.Header.Get would check that again for
// every request.
func Header(r *http.Request, name string) string {
	if v := r.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// JSON is the content type of nearly all answers.
const JSON = "application/json"

// ReadWhole reads a plain request's body. answer is the error to answer. If ok is false and answer is nil, the peer
// left before it had sent the body.
func ReadWhole(r *http.Request, into []byte, limit int64) (body []byte, answer *openai.Error, ok bool) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit), false
	}
	if n := min(int(r.ContentLength), trustedLength); n > cap(into) {
		into = make([]byte, 0, n+1)
	}
	b := into[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)) > limit {
			return nil, tooLarge(limit), false
		}
		if err == io.EOF {
			return b, nil, true
		}
		if err != nil {
			return nil, TooSlow(err), false
		}
	}
}

// trustedLength limits how much memory ReadWhole allocates for a Content-Length before the bytes arrive.
const trustedLength = 1 << 20

// TooSlow returns the error to answer if a body was cut because it was too slow, and nil for any other error.
func TooSlow(err error) *openai.Error {
	var slow *serve.SlowBodyError
	if err == nil || !errors.As(err, &slow) {
		return nil
	}
	return openai.TooSlow(
		"%v; send it faster, or start the server with a larger --body-idle-timeout or --body-timeout.", slow)
}

func tooLarge(limit int64) *openai.Error {
	return openai.TooLarge("", "The request body is longer than %d bytes.", limit)
}

// ReadBody reads a request's body. False means that the handler is done: ReadBody has answered, or the client has left.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, bool) {
	body, bad, ok := ReadWhole(r, nil, limit)
	if bad != nil {
		CloseAfter(w, r)
		Answer(w, bad)
	}
	return body, ok
}

// maxControlBody bounds the body of a request that is not for tokens.
const maxControlBody = 1 << 20

// ReadJSON reads a small JSON body. False means that ReadJSON has answered. known refuses keys that into does not have.
func ReadJSON(w http.ResponseWriter, r *http.Request, limit int64, into any, known bool) bool {
	body, ok := ReadBody(w, r, min(maxControlBody, limit))
	if !ok {
		return false
	}
	var err error
	if known {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(into)
	} else {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		Answer(w, openai.BadRequest("", "The request body is not the expected JSON object: %v.",
			err))
	}
	return err == nil
}
