package kvcodec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/windtunnel/windtunnel/core/kv"
)

// mpReader walks msgpack bytes without building values. Every length is
// checked against the bytes that are left before anything is allocated.
type mpReader struct {
	b   []byte
	off int
}

// maxDepth bounds the nesting of values that are skipped.
const maxDepth = 32

func (r *mpReader) left() int { return len(r.b) - r.off }

// errWant reports what stands at the reader's place and what should.
func (r *mpReader) errWant(want string) error {
	if r.left() == 0 {
		return fmt.Errorf("byte %d: the message ends here, expected %s", r.off, want)
	}
	return fmt.Errorf("byte %d: found %s, expected %s", r.off, mpName(r.b[r.off]), want)
}

// length reads a count of n bytes that follows the type byte.
func (r *mpReader) length(n int, want string) (int, error) {
	if r.left() < 1+n {
		return 0, fmt.Errorf("byte %d: the message ends inside %s", r.off, want)
	}
	p := r.b[r.off+1:]
	var v int
	switch n {
	case 1:
		v = int(p[0])
	case 2:
		v = int(binary.BigEndian.Uint16(p))
	default:
		v = int(binary.BigEndian.Uint32(p))
	}
	r.off += 1 + n
	return v, nil
}

func (r *mpReader) isNil() bool { return r.left() > 0 && r.b[r.off] == 0xc0 }

// takeNil consumes a nil and reports whether there was one.
func (r *mpReader) takeNil() bool {
	if r.isNil() {
		r.off++
		return true
	}
	return false
}

// array reads an array's head. Its count cannot exceed the bytes that are
// left, since every element takes at least one.
func (r *mpReader) array(want string, limit int) (int, error) {
	n, err := r.count(0x90, 0xdc, want)
	if err != nil {
		return 0, err
	}
	if n > r.left() {
		return 0, fmt.Errorf("byte %d: %s announces %d elements but only %d bytes follow", r.off, want, n, r.left())
	}
	if n > limit {
		return 0, fmt.Errorf("byte %d: %s has %d elements, the limit is %d", r.off, want, n, limit)
	}
	return n, nil
}

func (r *mpReader) isMap() bool {
	if r.left() == 0 {
		return false
	}
	c := r.b[r.off]
	return c&0xf0 == 0x80 || c == 0xde || c == 0xdf
}

// count reads the head of an array or a map: fix is the type byte of its short form, long that of the one with two
// bytes for the count.
func (r *mpReader) count(fix, long byte, want string) (int, error) {
	if r.left() == 0 {
		return 0, r.errWant(want)
	}
	switch c := r.b[r.off]; {
	case c&0xf0 == fix:
		r.off++
		return int(c & 0x0f), nil
	case c == long:
		return r.length(2, want)
	case c == long+1:
		return r.length(4, want)
	}
	return 0, r.errWant(want)
}

func (r *mpReader) mapLen(want string) (int, error) {
	n, err := r.count(0x80, 0xde, want)
	if err != nil {
		return 0, err
	}
	if 2*n > r.left() {
		return 0, fmt.Errorf("byte %d: %s announces %d pairs but only %d bytes follow", r.off, want, n, r.left())
	}
	return n, nil
}

// number reads any integer; a negative one comes back in two's complement.
func (r *mpReader) number(want string) (uint64, error) {
	if r.left() == 0 {
		return 0, r.errWant(want)
	}
	c := r.b[r.off]
	if c < 0x80 || c >= 0xe0 {
		r.off++
		return uint64(int64(int8(c))), nil
	}
	if c < 0xcc || c > 0xd3 {
		return 0, r.errWant(want)
	}
	size := 1 << ((c - 0xcc) & 3)
	if r.left() < 1+size {
		return 0, fmt.Errorf("byte %d: the message ends inside %s", r.off, want)
	}
	p := r.b[r.off+1:]
	r.off += 1 + size
	switch c {
	case 0xcc:
		return uint64(p[0]), nil
	case 0xcd:
		return uint64(binary.BigEndian.Uint16(p)), nil
	case 0xce:
		return uint64(binary.BigEndian.Uint32(p)), nil
	case 0xd0:
		return uint64(int64(int8(p[0]))), nil
	case 0xd1:
		return uint64(int64(int16(binary.BigEndian.Uint16(p)))), nil
	case 0xd2:
		return uint64(int64(int32(binary.BigEndian.Uint32(p)))), nil
	default: // 0xcf, 0xd3
		return binary.BigEndian.Uint64(p), nil
	}
}

// float reads any number as a float.
func (r *mpReader) float(want string) (float64, error) {
	if r.left() >= 9 && r.b[r.off] == 0xcb {
		v := math.Float64frombits(binary.BigEndian.Uint64(r.b[r.off+1:]))
		r.off += 9
		return v, nil
	}
	if r.left() >= 5 && r.b[r.off] == 0xca {
		v := math.Float32frombits(binary.BigEndian.Uint32(r.b[r.off+1:]))
		r.off += 5
		return float64(v), nil
	}
	v, err := r.number(want)
	return float64(int64(v)), err
}

// text reads a string's bytes; they alias the message.
func (r *mpReader) text(want string, limit int) ([]byte, error) {
	if r.left() == 0 {
		return nil, r.errWant(want)
	}
	switch c := r.b[r.off]; {
	case c&0xe0 == 0xa0:
		r.off++
		return r.bytes(int(c&0x1f), want, limit)
	case c >= 0xd9 && c <= 0xdb:
		n, err := r.length(1<<(c-0xd9), want)
		if err != nil {
			return nil, err
		}
		return r.bytes(n, want, limit)
	}
	return nil, r.errWant(want)
}

func (r *mpReader) bytes(n int, want string, limit int) ([]byte, error) {
	if n > r.left() {
		return nil, fmt.Errorf("byte %d: the message ends inside %s", r.off, want)
	}
	if n > limit {
		return nil, fmt.Errorf("byte %d: %s has %d bytes, the limit is %d", r.off, want, n, limit)
	}
	p := r.b[r.off : r.off+n]
	r.off += n
	return p, nil
}

// hash reads a block's hash: a 64-bit integer in its 9-byte form, or bytes, of
// which the last 8 count, and fewer as if zeros stood before them. The recorded
// endpoint picker takes no shorter integers; with lenient they are taken.
func (r *mpReader) hash(lenient bool) (kv.EngineHash, error) {
	const want = "a hash (uint64 or int64 in 9 bytes, or bin of at least 1)"
	if r.left() == 0 {
		return 0, r.errWant(want)
	}
	switch c := r.b[r.off]; {
	case c == 0xcf || c == 0xd3:
		if r.left() < 9 {
			return 0, fmt.Errorf("byte %d: the message ends inside %s", r.off, want)
		}
		v := binary.BigEndian.Uint64(r.b[r.off+1:])
		r.off += 9
		return kv.EngineHash(v), nil
	case c >= 0xc4 && c <= 0xc6:
		at := r.off
		n, err := r.length(1<<(c-0xc4), want)
		if err != nil {
			return 0, err
		}
		p, err := r.bytes(n, want, 4096)
		if err != nil {
			return 0, err
		}
		if len(p) == 0 {
			return 0, fmt.Errorf("byte %d: found an empty bin, expected %s", at, want)
		}
		var last [8]byte
		p = p[max(0, len(p)-8):]
		copy(last[8-len(p):], p)
		return kv.EngineHash(binary.BigEndian.Uint64(last[:])), nil
	case lenient:
		v, err := r.number(want)
		return kv.EngineHash(v), err
	}
	return 0, r.errWant(want)
}

// skip passes over any one value.
func (r *mpReader) skip(depth int) error {
	if r.left() == 0 {
		return r.errWant("a value")
	}
	if depth > maxDepth {
		return fmt.Errorf("byte %d: values are nested deeper than %d", r.off, maxDepth)
	}
	c := r.b[r.off]
	var fixed int
	switch {
	case c < 0x80, c >= 0xe0, c >= 0xc0 && c <= 0xc3:
		fixed = 1
	case c == 0xca:
		fixed = 5
	case c == 0xcb:
		fixed = 9
	case c >= 0xcc && c <= 0xd3:
		fixed = 1 + 1<<((c-0xcc)&3)
	case c >= 0xd4 && c <= 0xd8: // fixext
		fixed = 2 + 1<<(c-0xd4)
	case c&0xf0 == 0x90, c == 0xdc, c == 0xdd:
		n, err := r.array("an array", math.MaxInt)
		for i := 0; i < n && err == nil; i++ {
			err = r.skip(depth + 1)
		}
		return err
	case r.isMap():
		n, err := r.mapLen("a map")
		for i := 0; i < 2*n && err == nil; i++ {
			err = r.skip(depth + 1)
		}
		return err
	case c&0xe0 == 0xa0, c >= 0xd9 && c <= 0xdb:
		_, err := r.text("a string", math.MaxInt)
		return err
	default: // bin 0xc4..0xc6, ext 0xc7..0xc9 (one byte more, its type)
		more := 0
		size := c - 0xc4
		if c >= 0xc7 {
			more, size = 1, c-0xc7
		}
		n, err := r.length(1<<size, "bytes")
		if err == nil {
			_, err = r.bytes(n+more, "bytes", math.MaxInt)
		}
		return err
	}
	if r.left() < fixed {
		return fmt.Errorf("byte %d: the message ends inside %s", r.off, mpName(c))
	}
	r.off += fixed
	return nil
}

// mpName returns the msgpack specification's name for a type byte.
func mpName(c byte) string {
	switch {
	case c < 0x80:
		return "positive fixint"
	case c < 0x90:
		return "fixmap"
	case c < 0xa0:
		return "fixarray"
	case c < 0xc0:
		return "fixstr"
	case c >= 0xe0:
		return "negative fixint"
	}
	return [...]string{
		"nil", "a reserved byte", "false", "true", "bin 8", "bin 16", "bin 32",
		"ext 8", "ext 16", "ext 32", "float 32", "float 64", "uint 8", "uint 16",
		"uint 32", "uint 64", "int 8", "int 16", "int 32", "int 64", "fixext 1",
		"fixext 2", "fixext 4", "fixext 8", "fixext 16", "str 8", "str 16",
		"str 32", "array 16", "array 32", "map 16", "map 32",
	}[c-0xc0]
}
