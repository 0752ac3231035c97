package kv

import (
	"fmt"
	"strconv"
	"strings"
)

// namePrefix stands before every block_hash in document 003.
const namePrefix = "sha256:"

// Name writes an engine's hash as document 003 writes a block_hash.
func (h EngineHash) Name() string { return fmt.Sprintf("%s%016x", namePrefix, uint64(h)) }

// Named reads a block_hash. "sha256:" and 16 hexadecimal digits, as Name
// writes it, is that number; a whole SHA-256 counts by its last 8 bytes, as it
// does in msgpack; anything else stands for itself, by FNV-64a of its text.
// So one block has one hash whichever format its events came in.
func Named(name string) EngineHash {
	digits := strings.TrimPrefix(name, namePrefix)
	if len(digits) == 16 || len(digits) == 64 {
		if v, err := strconv.ParseUint(digits[len(digits)-16:], 16, 64); err == nil && isHex(digits) {
			return EngineHash(v)
		}
	}
	return EngineHash(fnvString(fnvOffset, name))
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}
