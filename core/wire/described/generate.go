package described

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of a GenerateRequest's first fields, and the length of what stands
// before any gRPC message.
const (
	generateID   = 1
	generateText = 3
	frameHeader  = 5
)

// generateLen returns how long what AppendGenerate appends is.
func generateLen(id string, prompt int) int {
	return frameHeader + protowire.SizeTag(generateID) + protowire.SizeBytes(len(id)) +
		protowire.SizeTag(generateText) + protowire.SizeVarint(uint64(prompt))
}

// AppendGenerate appends what is before the prompt of a GenerateRequest: its frame,
// the request's id, and the prompt's length. prompt and after are the lengths of
// the prompt and of the fields behind it.
func AppendGenerate(b []byte, id string, prompt, after int) []byte {
	n := generateLen(id, prompt) - frameHeader + prompt + after
	b = binary.BigEndian.AppendUint32(append(b, 0), uint32(n))
	b = protowire.AppendString(protowire.AppendTag(b, generateID, protowire.BytesType), id)
	return protowire.AppendVarint(protowire.AppendTag(b, generateText, protowire.BytesType), uint64(prompt))
}
