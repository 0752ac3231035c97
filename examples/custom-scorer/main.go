// Command custom-scorer is windtunnel with an additional scorer, the one of document 002, which prefers endpoints
// whose GPU has the most free memory. The commands run, sim, epp and preview know it.
package main

import (
	"context"
	"os"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/program"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/extend"
)

// gpuMemory scores the free fraction of the GPU's memory.
type gpuMemory struct{}

func (gpuMemory) Name() string { return "gpu-memory-scorer" }

func (gpuMemory) Score(_ context.Context, _ *extend.Request, pod *extend.Pod) float64 {
	total := pod.Metrics.GPUMemoryTotalBytes
	if total == 0 {
		return 0
	}
	return float64(total-pod.Metrics.GPUMemoryUsedBytes) / float64(total)
}

func main() {
	extend.Scorer("gpu-memory-scorer", func(picker.Params) (extend.ScorerPlugin, error) { return gpuMemory{}, nil })
	os.Exit(program.Main())
}
