package kvmanager

import (
	"context"
	"fmt"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/windtunnel/windtunnel/internal/pause"
)

// OutOfMemoryError says that a manager had more memory than its container gives
// it. The process ends, as one does that the kernel kills.
type OutOfMemoryError struct{ Used, Limit int64 } // bytes

// Error has document 003's remedies.
func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("OOMKilled: the KV-cache manager has %.1f MiB of memory, its limit is %.1f MiB; lower "+
		"INDEX_MAX_BLOCKS, INDEX_TTL or INDEX_CLEANUP_INTERVAL, or raise --memory-limit",
		float64(e.Used)/(1<<20), float64(e.Limit)/(1<<20))
}

// memoryEvery is how often the memory is looked at.
const memoryEvery = time.Second

// watchMemory ends with an error when the process has more memory than the
// limit although the garbage collector has been told of it.
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
