package described

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// The field numbers of a GenerateRequest's first fields, and the length of a gRPC message's prefix in bytes.
const (
	generateID   = 1
	generateText = 3
	frameHeader  = 5
)

// generateLen returns the number of bytes that AppendGenerate appends.
func generateLen(id string, prompt int) int {
	return frameHeader + protowire.SizeTag(generateID) + protowire.SizeBytes(len(id)) +
		protowire.SizeTag(generateText) + protowire.SizeVarint(uint64(prompt))
}

// AppendGenerate appends the part of a GenerateRequest before its prompt: the frame, the request's id, and the prompt's
// length. prompt and after are the lengths of the prompt and of the fields after it, in bytes.
func AppendGenerate(b []byte, id string, prompt, after int) []byte {
	n := generateLen(id, prompt) - frameHeader + prompt + after
	b = binary.BigEndian.AppendUint32(append(b, 0), uint32(n))
	b = protowire.AppendString(protowire.AppendTag(b, generateID, protowire.BytesType), id)
	return protowire.AppendVarint(protowire.AppendTag(b, generateText, protowire.BytesType), uint64(prompt))
}
