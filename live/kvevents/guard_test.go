package kvevents

import (
	"encoding/binary"
	"testing"
)

// However the bytes are cut into reads, the guard comes to the same verdict,
// and lets no message beyond its limit pass.
func FuzzGuard(f *testing.F) {
	greeting := make([]byte, 64)
	f.Add(append(greeting, 1, 3, 'a', 'b', 'c', 0, 1, 'd'), uint8(3))
	f.Add(append(greeting, 2, 0, 0, 0, 0, 0, 0, 4, 0), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		const limit = 512
		whole, cut := &guard{skip: 64, limit: limit}, &guard{skip: 64, limit: limit}
		want := whole.follow(stream)
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(len(rest), int(step)+1)
			got = cut.follow(rest[:n])
			rest = rest[n:]
		}
		if (want == nil) != (got == nil) {
			t.Fatalf("in one: %v, in parts: %v", want, got)
		}
		if want != nil || len(stream) < 64 {
			return
		}
		for rest, sum := stream[64:], uint64(0); len(rest) >= 2; {
			size, head := uint64(rest[1]), 2
			if rest[0]&2 != 0 {
				if len(rest) < 9 {
					return
				}
				size, head = binary.BigEndian.Uint64(rest[1:]), 9
			}
			if sum += size; size > limit || sum > limit {
				t.Fatalf("a message of %d bytes passed", sum)
			}
			if rest[0]&1 == 0 {
				sum = 0
			}
			rest = rest[min(uint64(len(rest)), uint64(head)+size):]
		}
	})
}
