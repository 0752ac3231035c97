package machine

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Words are 64-bit numbers that a saved state holds as text: base64 of their bytes, the lowest byte first.
type Words []uint64

// MarshalText returns the numbers' text.
func (w Words) MarshalText() ([]byte, error) { return AppendWords(nil, w), nil }

// UnmarshalText reads MarshalText's text. It fails on a text that is not base64 or ends within a number.
func (w *Words) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	switch {
	case err != nil:
		return err
	case len(b)%8 != 0:
		return errors.New("the text of 64-bit numbers ends within one")
	}
	for *w = nil; len(b) > 0; b = b[8:] {
		*w = append(*w, binary.LittleEndian.Uint64(b))
	}
	return nil
}

// AppendWords appends the numbers' text to b.
func AppendWords[W ~uint64](b []byte, list []W) []byte {
	var raw [3 * 8 * 32]byte // whole base64 groups
	for len(list) > 0 {
		n := min(len(list), len(raw)/8)
		for i, w := range list[:n] {
			binary.LittleEndian.PutUint64(raw[8*i:], uint64(w))
		}
		b = base64.StdEncoding.AppendEncode(b, raw[:8*n])
		list = list[n:]
	}
	return b
}

// WordsOf converts numbers of another type.
func WordsOf[W ~uint64](list []W) Words {
	out := make(Words, len(list))
	for i, w := range list {
		out[i] = uint64(w)
	}
	return out
}
