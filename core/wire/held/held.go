// Package held encodes and decodes the held-open request of document 000 (docs/documents.md): one multipart/form-data
// body whose two parts are sent at different times.
//
// The EPP sends part 1, request_payload, which is the client's JSON byte for byte. It ends part 1 with the next
// delimiter line, because without that line a reader cannot know that the part is complete. Then the upstream request
// stays open while the model server prefills. After the first token has arrived, the EPP sends part 2, metadata, with
// the closing boundary, and ends the request.
//
//	--B␍␊
//	Content-Disposition: form-data; name="request_payload"␍␊
//	Content-Type: application/json␍␊
//	␍␊
//	{"model":…}␍␊
//	--B␍␊                                     ← Part1 ends here; the request is held
//	Content-Disposition: form-data; name="metadata"␍␊
//	Content-Type: text/plain; charset=utf-8␍␊
//	␍␊
//	k3x…␍␊
//	--B--␍␊                                   ← Part2 ends here, and so does the request
//
// NewBoundary, ContentType, Part1 and Part2 write a body. A Reader reads the body in any pieces and reports when each
// part is complete. docs/flow.md describes the same format for people who write their own programs.
package held

import (
	"bytes"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Names of the two parts, and of the field in which the model server echoes the metadata. That field is at the top
// level of the last SSE chunk before [DONE], or of the JSON body of a response that is not streamed.
const (
	PayloadPart  = "request_payload"
	MetadataPart = "metadata"
	EchoField    = "metadata"
	// ResponsesEchoField replaces it in /v1/responses, where metadata is an object of the client's.
	ResponsesEchoField = "held_metadata"
)

const (
	payloadHeader = "Content-Disposition: form-data; name=\"" + PayloadPart +
		"\"\r\nContent-Type: application/json\r\n\r\n"
	metadataHeader = "Content-Disposition: form-data; name=\"" + MetadataPart +
		"\"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
)

const boundaryPrefix = "windtunnel-"

// NewBoundary draws a boundary that does not occur in the payload. The caller may leave out parts of the
// payload that cannot have one (MayBound).
func NewBoundary(d *machine.Draw, payload ...[]byte) string {
	for {
		b := boundaryPrefix + d.Letters(24)
		if !slices.ContainsFunc(payload, func(part []byte) bool { return bytes.Contains(part, []byte(b)) }) {
			return b
		}
	}
}

// MayBound reports whether a boundary may occur in a text.
func MayBound(text string) bool { return strings.Contains(text, boundaryPrefix) }

// ContentType returns the content-type header of a held body.
func ContentType(boundary string) string {
	return contentTypeBefore + boundary
}

const contentTypeBefore = "multipart/form-data; boundary="

// plainBoundary reports whether a boundary needs no parsing: it has letters, digits and hyphens only, and an allowed
// length.
func plainBoundary(b string) bool {
	for i := range len(b) {
		if c := b[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return b != "" && len(b) <= maxBoundary
}

const maxBoundary = 70 // RFC 2046: 1 to 70 characters

// Boundary parses the boundary in a content-type header. isHeld is false where the value is not multipart/form-data at
// all: the request is then an ordinary one.
func Boundary(contentType string) (boundary string, isHeld bool, err error) {
	if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), "multipart/form-data") {
		return "", false, nil
	}
	if b, ok := strings.CutPrefix(contentType, contentTypeBefore); ok && plainBoundary(b) {
		return b, true, nil // in the form of ContentType
	}
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", true, fmt.Errorf("content-type %q: %w; expected multipart/form-data; boundary=…", contentType, err)
	}
	b := params["boundary"]
	if b == "" || len(b) > maxBoundary {
		return "", true, fmt.Errorf("content-type %q: boundary has %d characters, expected 1 to 70", contentType,
			len(b))
	}
	return b, true, nil
}

// Part1 returns the first piece of the body: the payload, up to and including the delimiter line that ends it.
func Part1(boundary string, payload []byte) []byte {
	out := make([]byte, 0, len(payload)+2*len(boundary)+len(payloadHeader)+16)
	out = append(out, "--"...)
	out = append(out, boundary...)
	out = append(out, "\r\n"+payloadHeader...)
	out = append(out, payload...)
	out = append(out, "\r\n--"...)
	out = append(out, boundary...)
	return append(out, "\r\n"...)
}

// Part2 returns the rest of the body: the metadata and the closing boundary.
func Part2(boundary, metadata string) []byte {
	return []byte(metadataHeader + metadata + "\r\n--" + boundary + "--\r\n")
}

// ViolationType is the error type that a model server returns for a held request that violates the contract.
const ViolationType = "HeldRequestViolation"
