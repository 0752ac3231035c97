package dataproducer

import (
	"runtime"
	"testing"
)

// Memory of a large pool with long prefix histories, per endpoint and block.
func BenchmarkPrefixMemory(b *testing.B) {
	const endpoints, sessions, blocks = 10_000, 1_000, 1
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x := newPrefixIndex()
		hashes := make([]uint64, blocks)
		for e := range endpoints {
			for s := range sessions {
				for k := range hashes {
					hashes[k] = uint64(e)<<40 | uint64(s)<<8 | uint64(k) | 1<<63
				}
				x.add(hashes, 0, e, 31250)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(endpoints*sessions*blocks), "B/block")
		runtime.KeepAlive(x)
	}
}
