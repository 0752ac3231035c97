package held

import (
	"bytes"
	"fmt"
	"mime"
	"net/textproto"
	"strings"
)

// Limits on what a Reader keeps.
const (
	// MaxHeaderBytes limits the headers of one part.
	MaxHeaderBytes = 4 << 10
	// MaxMetadataBytes limits the content of part 2.
	MaxMetadataBytes = 64 << 10
)

// ViolationError says how a held body violated the contract of docs/flow.md.
type ViolationError struct{ Reason string }

func (e *ViolationError) Error() string { return "held request: " + e.Reason }

func violation(format string, args ...any) *ViolationError {
	return &ViolationError{fmt.Sprintf(format, args...)}
}

// Reader takes a held body in pieces of any size and reports which parts are complete. It is strict: both parts in
// order, each once, and nothing after the closing boundary. Every error is a *ViolationError and is final.
type Reader struct {
	delimiter  []byte // CRLF "--" boundary
	maxPayload int
	state      readerState
	buf        []byte // bytes of the current element, not yet consumed
	scanned    int    // the length of buf already searched for the delimiter
	payload    []byte
	metadata   string
	err        error
}

type readerState uint8

const (
	atStart readerState = iota
	inPayloadHeader
	inPayload
	inMetadataHeader
	inMetadata
	atEnd
)

// NewReader returns a reader for a body with this boundary and a payload of at most maxPayload bytes.
func NewReader(boundary string, maxPayload int) *Reader {
	// No CRLF precedes the opening delimiter. With one at the beginning of the buffer, the reader finds all delimiters
	// in the same way.
	return &Reader{delimiter: []byte("\r\n--" + boundary), maxPayload: maxPayload, buf: []byte("\r\n")}
}

// Write takes the next bytes of the body.
func (r *Reader) Write(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.buf = append(r.buf, p...)
	for r.err == nil && r.step() {
	}
	if r.err != nil {
		return 0, r.err
	}
	return len(p), nil
}

// Close ends the body. It returns an error unless the reader has seen the closing boundary.
func (r *Reader) Close() error {
	if r.err == nil && r.state != atEnd {
		missing := "the request ended before part 1 was whole"
		if r.PayloadDone() {
			missing = "the request ended before part 2 was whole"
		}
		r.err = violation("%s", missing)
	}
	return r.err
}

// PayloadDone reports whether part 1 is complete.
func (r *Reader) PayloadDone() bool { return r.state > inPayload }

// Payload returns part 1's content. It is valid once PayloadDone is true.
func (r *Reader) Payload() []byte { return r.payload }

// Part2Begun reports whether any byte after part 1's delimiter line has arrived. If a model server sees this before it
// has sent its first token, the EPP did not wait for that token.
func (r *Reader) Part2Begun() bool {
	return r.state > inMetadataHeader || r.state == inMetadataHeader && len(r.buf) > 0
}

// Done reports whether the reader has seen the closing boundary.
func (r *Reader) Done() bool { return r.state == atEnd }

// Metadata returns part 2's content. It is valid once Done is true.
func (r *Reader) Metadata() string { return r.metadata }

// step consumes one element of buf. It returns false where it needs more bytes.
func (r *Reader) step() bool {
	switch r.state {
	case atStart:
		if len(r.buf) < len(r.delimiter)+2 {
			return r.fail(!bytes.HasPrefix(r.delimiter, r.buf[:min(len(r.buf), len(r.delimiter))]),
				"the body does not begin with the boundary named in content-type")
		}
		if !bytes.HasPrefix(r.buf, r.delimiter) {
			return r.fail(true, "the body does not begin with the boundary named in content-type")
		}
		return r.afterDelimiter(len(r.delimiter), inPayloadHeader)
	case inPayloadHeader:
		return r.header(PayloadPart, payloadHeader, inPayload)
	case inPayload:
		content, rest, ok := r.content(r.maxPayload, "part 1")
		if !ok {
			return false
		}
		if rest+2 > len(r.buf) {
			return false
		}
		r.payload = content[:len(content):len(content)] // buf only grows after it
		return r.afterDelimiter(rest, inMetadataHeader)
	case inMetadataHeader:
		return r.header(MetadataPart, metadataHeader, inMetadata)
	case inMetadata:
		content, rest, ok := r.content(MaxMetadataBytes, "part 2")
		if !ok || rest+4 > len(r.buf) {
			return false
		}
		if string(r.buf[rest:rest+4]) != "--\r\n" {
			return r.fail(true, "part 2 is not followed by the closing boundary")
		}
		r.metadata = string(content)
		r.advance(rest+4, atEnd)
		return true
	default:
		return r.fail(len(r.buf) > 0, "there are bytes after the closing boundary")
	}
}

func (r *Reader) fail(wrong bool, reason string) bool {
	if wrong {
		r.err = violation("%s", reason)
	}
	return false
}

func (r *Reader) advance(n int, next readerState) {
	r.buf = r.buf[n:]
	if len(r.buf) == 0 {
		r.buf = nil
	}
	r.scanned, r.state = 0, next
}

// afterDelimiter expects a CRLF after a delimiter that ends at n.
func (r *Reader) afterDelimiter(n int, next readerState) bool {
	if string(r.buf[n:n+2]) != "\r\n" {
		return r.fail(true, "a delimiter line has something behind the boundary")
	}
	r.advance(n+2, next)
	return true
}

// header expects one part's headers, which must name the part. Headers as Part1 and Part2 write them need no parsing.
func (r *Reader) header(name, written string, next readerState) bool {
	if bytes.HasPrefix(r.buf, []byte(written)) {
		r.advance(len(written), next)
		return true
	}
	end := bytes.Index(r.buf, []byte("\r\n\r\n"))
	if end < 0 || end > MaxHeaderBytes {
		return r.fail(end > MaxHeaderBytes || len(r.buf) > MaxHeaderBytes,
			fmt.Sprintf("the headers of part %q are longer than %d bytes", name, MaxHeaderBytes))
	}
	for line := range strings.SplitSeq(string(r.buf[:end]), "\r\n") {
		key, value, _ := strings.Cut(line, ":")
		if textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(key)) != "Content-Disposition" {
			continue
		}
		_, params, err := mime.ParseMediaType(value)
		if err == nil && params["name"] == name {
			r.advance(end+4, next)
			// The delimiter follows an empty content at once. Its CRLF is then the end of the headers' blank line.
			return true
		}
	}
	return r.fail(true, fmt.Sprintf("expected a part named %q", name))
}

// content finds the delimiter that ends a part. rest is the index after it.
func (r *Reader) content(limit int, what string) (content []byte, rest int, ok bool) {
	i := bytes.Index(r.buf[r.scanned:], r.delimiter)
	if i < 0 {
		r.scanned = max(0, len(r.buf)-len(r.delimiter)+1)
		r.fail(len(r.buf) > limit+len(r.delimiter), fmt.Sprintf("%s has more than %d bytes", what, limit))
		return nil, 0, false
	}
	i += r.scanned
	r.scanned = i
	if i > limit {
		r.fail(true, fmt.Sprintf("%s has more than %d bytes", what, limit))
		return nil, 0, false
	}
	return r.buf[:i], i + len(r.delimiter), true
}
