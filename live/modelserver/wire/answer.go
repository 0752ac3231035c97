package wire

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// ownLength is the longest body whose length net/http tells by itself.
const ownLength = 2000

var jsonHeader = []string{JSON} // shared by all answers: nobody changes it

// Write answers with one whole body.
func Write(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	if contentType == JSON {
		h["Content-Type"] = jsonHeader
	} else {
		h["Content-Type"] = []string{contentType}
	}
	if len(body) > ownLength || len(body) == 0 {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}

// CloseAfter tells an HTTP/1.1 client that the connection ends with this
// answer: the request's body is not read to its end, so net/http will close it,
// and a client that was not told might send its next request into the void.
func CloseAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
}

// Answer answers with an error, as vLLM tells it.
func Answer(w http.ResponseWriter, e *openai.Error) {
	Write(w, e.Status, JSON, openai.AppendError(nil, e))
}

// NewID is a fresh request id for a client that brought none.
func NewID() string {
	var b [16]byte // an id need not be secret
	binary.LittleEndian.PutUint64(b[:], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	var id [2 * len(b)]byte
	hex.Encode(id[:], b[:])
	return string(id[:])
}

// Empty answers 200 without a body.
func Empty(w http.ResponseWriter) {
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusOK)
}

// Cut breaks the connection under a request: abruptly with a reset, or by
// closing it. It does not return.
func Cut(w http.ResponseWriter, reset bool) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // close then sends RST; failing that, FIN is a cut as well
		}
		_ = conn.Close()
	}
	// HTTP/2 resets the stream; a hijacked HTTP/1.1 handler just ends.
	panic(http.ErrAbortHandler)
}

// Fill answers with a JSON template and its values, as openai.Fill takes them.
func Fill(w http.ResponseWriter, template string, values ...any) {
	Write(w, http.StatusOK, JSON, openai.Fill(nil, template, values...))
}
