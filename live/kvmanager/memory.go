package kvmanager

import (
	"context"
	"fmt"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/windtunnel/windtunnel/internal/pause"
)

// OutOfMemoryError is the end of a manager that used more memory than its container's limit. The process then exits,
// as after the kernel's OOM kill.
type OutOfMemoryError struct{ Used, Limit int64 } // bytes

// Error names document 003's remedies.
func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("OOMKilled: the KV-cache manager has %.1f MiB of memory, its limit is %.1f MiB; lower "+
		"INDEX_MAX_BLOCKS, INDEX_TTL or INDEX_CLEANUP_INTERVAL, or raise --memory-limit",
		float64(e.Used)/(1<<20), float64(e.Limit)/(1<<20))
}

// memoryEvery is the interval between two readings of the memory.
const memoryEvery = time.Second

// watchMemory returns an OutOfMemoryError when the process has more memory than the limit, although the garbage
// collector tries to stay below nine tenths of it.
func watchMemory(ctx context.Context, limit int64) error {
	was := debug.SetMemoryLimit(limit * 9 / 10)
	defer debug.SetMemoryLimit(was)
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}
	for ctx.Err() == nil {
		runtimemetrics.Read(samples)
		if used := int64(samples[0].Value.Uint64() - samples[1].Value.Uint64()); used > limit {
			return &OutOfMemoryError{used, limit}
		}
		pause.For(ctx, memoryEvery)
	}
	return nil
}
