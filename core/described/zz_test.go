package described

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

func BenchmarkLetters(b *testing.B) {
	buf := make([]byte, 0, 4096)
	for b.Loop() {
		buf = AppendLetters(buf[:0], machine.Draw{}, 2048)
	}
}
