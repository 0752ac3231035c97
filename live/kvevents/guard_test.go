package kvevents

import (
	"encoding/binary"
	"errors"
	"testing"
)

// followed passes a stream to the guard in pieces of step bytes.
func (g *guard) followed(stream []byte, step int) (err error) {
	for rest := stream; len(rest) > 0 && err == nil; {
		n := min(len(rest), step)
		err = g.follow(rest[:n])
		rest = rest[n:]
	}
	return err
}

// For messages of known sizes in reads of any size, the guard stops at the first message that is too large or has too
// many frames. Otherwise it ends between two frames.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{3, 1, 0, 0, 128, 3}, uint8(3))
	f.Add([]byte{100, 1, 29, 0}, uint8(1))
	f.Add(make([]byte, 40), uint8(7))
	f.Fuzz(func(t *testing.T, frames []byte, step uint8) {
		const limit = 512
		stream, message, parts, large := make([]byte, 64), 0, 0, false
		for ; len(frames) >= 2 && !large; frames = frames[2:] {
			size, flags := int(frames[0])*4, frames[1]&3 // 1: more frames follow; 2: the size has 8 bytes
			if size > 255 {
				flags |= 2
			}
			stream = append(stream, flags)
			if flags&2 != 0 {
				stream = binary.BigEndian.AppendUint64(stream, uint64(size))
			} else {
				stream = append(stream, byte(size))
			}
			stream = append(stream, make([]byte, size)...)
			message, parts = message+size, parts+1
			large = message > limit || parts > maxFrames
			if flags&1 == 0 {
				message, parts = 0, 0
			}
		}
		g := &guard{skip: 64, limit: limit}
		err := g.followed(stream, int(step)+1)
		if errors.Is(err, errTooLarge) != large || err == nil && (g.skip != 0 || g.headLen != 0) {
			t.Fatalf("a message too large: %v, the guard says %v and is at %+v", large, err, g)
		}
	})
}

// For any bytes, the guard's verdict does not depend on the sizes of the reads.
func FuzzGuardCuts(f *testing.F) {
	f.Add(append(make([]byte, 64), 2, 0, 0, 0, 0, 0, 0, 4, 0), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		whole, cut := &guard{skip: 64, limit: 512}, &guard{skip: 64, limit: 512}
		want, got := whole.followed(stream, max(1, len(stream))), cut.followed(stream, int(step)+1)
		if (want == nil) != (got == nil) || want == nil && *whole != *cut {
			t.Fatalf("in one: %v %+v, in parts: %v %+v", want, whole, got, cut)
		}
	})
}
