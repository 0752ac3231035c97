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

// ownLength is the longest body for which net/http sets the length itself.
const ownLength = 2000

var jsonHeader = []string{JSON} // all answers share it, so it must not be changed

// Write sends an answer with a whole body.
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
	_, _ = w.Write(body) // the client may have left; no error could be reported to it
}

// CloseAfter announces to an HTTP/1.1 client that the connection ends with this answer. net/http closes the connection
// because the request's body is not read to its end. Without the announcement, the client might send its next request
// on the closed connection.
func CloseAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = []string{"close"}
	}
}

// Answer sends an error in vLLM's form.
func Answer(w http.ResponseWriter, e *openai.Error) {
	Write(w, e.Status, JSON, openai.AppendError(nil, e))
}

// NewID returns a new request id, for a request without one.
func NewID() string {
	var b [16]byte // an id need not be secret
	binary.LittleEndian.PutUint64(b[:], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	var id [2 * len(b)]byte
	hex.Encode(id[:], b[:])
	return string(id[:])
}

// Empty sends status 200 without a body.
func Empty(w http.ResponseWriter) {
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusOK)
}

// Cut breaks the connection of a request: with a reset, or by closing it. It does not return.
func Cut(w http.ResponseWriter, reset bool) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // close then sends RST; without it, FIN is a cut as well
		}
		_ = conn.Close()
	}
	// HTTP/2 resets the stream; a hijacked HTTP/1.1 handler just ends.
	panic(http.ErrAbortHandler)
}

// Fill answers with a JSON template and its values, in the form of openai.Fill.
func Fill(w http.ResponseWriter, template string, values ...any) {
	Write(w, http.StatusOK, JSON, openai.Fill(nil, template, values...))
}
