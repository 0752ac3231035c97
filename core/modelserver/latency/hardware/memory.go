package hardware

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// MemoryConfig holds the settings that decide the number of a model server's KV blocks, under the names of vLLM's
// flags. A zero field takes the default in its comment.
type MemoryConfig struct {
	Hardware             *Hardware
	BlockSize            int     // 16 tokens
	GPUMemoryUtilization float64 // the vLLM release's own
	MaxNumSeqs           int     // 256
	MaxNumBatchedTokens  int     // 8192
	MaxModelLen          int     // the model's longest context
	EnforceEager         bool    // no CUDA graphs
	// KVBytes is the size of a rank's KV cache. It replaces GPUMemoryUtilization.
	KVBytes        int64
	SwapSpaceBytes int64 // host memory per rank for KV blocks that are offloaded
	// HostLimitBytes is the container's memory limit, 0 for none. RanksPerPod is the number of ranks that share it
	// (those of one node).
	HostLimitBytes int64
	RanksPerPod    int
}

// MemoryPlan is the division of one rank's memory.
type MemoryPlan struct {
	Total       int64 // bytes of the accelerator
	Usable      int64 // part of Total that gpu_memory_utilization allows
	Weights     int64
	Activations int64 // the peak of a full batch
	Runtime     int64 // driver context and communication buffers
	Graphs      int64 // CUDA graphs, taken outside Usable before vLLM 0.20
	KV          int64 // the rest, for the cache
	BlockBytes  int64 // of one KV block on this rank
	// NumGPUBlocks is the number of whole blocks in KV, NumCPUBlocks the number in SwapSpaceBytes.
	NumGPUBlocks, NumCPUBlocks int
	HostBytes                  int64 // host memory of a pod
}

// OutOfMemoryError reports that a model server does not fit. Its pod is OOMKilled and restarts, again and again
// (document 003, troubleshooting 5).
type OutOfMemoryError struct {
	// Where is "accelerator" or "host".
	Where string
	Plan  MemoryPlan
	// Need and Have are bytes of the exhausted memory; What names its use.
	What       string
	Need, Have int64
	Remedy     string
}

// Error returns the arithmetic and the settings to change.
func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("out of %s memory: %s %s, there are %s; %s", e.Where, e.What, gib(e.Need), gib(e.Have), e.Remedy)
}

func gib(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

// Fixed parts, as vLLM's start-up log reports them for common models.
const (
	runtimeBytes     = 300 * mib // CUDA context, cuBLAS workspaces
	ncclBytes        = 500 * mib // communicators and buffers, if there is more than one rank
	graphBytes       = 400 * mib // captured graphs: a base and a part per sequence and layer
	hostProcessBytes = 5 << 30   // API server, engine core, a weight shard being loaded
)

// PlanMemory divides one rank's memory as vLLM does when it starts: the weights, the peak of a dummy full batch, and KV
// blocks from the rest.
func PlanMemory(c MemoryConfig) (MemoryPlan, error) {
	if err := c.fill(); err != nil {
		return MemoryPlan{}, err
	}
	h := c.Hardware
	m, tp := &h.Model, int64(h.Group.TP)
	p := MemoryPlan{Total: h.Accelerator.MemoryBytes, Weights: h.WeightBytes(), Runtime: runtimeBytes}
	p.Usable = machine.MulDiv(p.Total, int64(math.Round(c.GPUMemoryUtilization*1e6)), 1e6)
	if h.Group.Ranks() > 1 {
		p.Runtime += ncclBytes
	}
	ffn := int64(m.FFN)
	if m.Experts > 0 {
		ffn = max(ffn, int64(m.ActiveExperts*m.ExpertFFN+m.SharedFFN))
	}
	// Residual, input and output of a layer; gate, up and their product; and
	// the logits in 16 bits, then in 32 bits twice for sampling.
	p.Activations = 2*int64(c.MaxNumBatchedTokens)*(3*int64(m.Hidden)+3*ffn/tp) + 10*int64(c.MaxNumSeqs)*int64(m.Vocab)
	if !c.EnforceEager {
		p.Graphs = graphBytes + int64(c.MaxNumSeqs)*int64(m.Layers)*32*1024
	}
	if h.VLLM.GraphsCounted {
		p.Runtime, p.Graphs = p.Runtime+p.Graphs, 0
	}
	p.BlockBytes = int64(c.BlockSize) * m.KVBytesPerTokenRank(h.KV, h.Group.TP)
	if c.KVBytes > 0 {
		p.Usable = p.Weights + p.Activations + p.Runtime + c.KVBytes
	}
	p.KV = p.Usable - p.Weights - p.Activations - p.Runtime
	p.NumGPUBlocks = int(max(0, p.KV) / p.BlockBytes)
	p.NumCPUBlocks = int(c.SwapSpaceBytes / p.BlockBytes)
	p.HostBytes = int64(c.RanksPerPod) * (hostProcessBytes + c.SwapSpaceBytes)
	return p, c.fits(p)
}

func (c *MemoryConfig) fits(p MemoryPlan) error {
	oom := func(where, what string, need, have int64, remedy string) error {
		return &OutOfMemoryError{where, p, what, need, have, remedy}
	}
	ranks := c.Hardware.Group.Ranks()
	switch sequence := p.BlockBytes * int64((c.MaxModelLen+c.BlockSize-1)/c.BlockSize); {
	case c.KVBytes > 0 && p.Usable+p.Graphs > p.Total:
		return oom("accelerator", fmt.Sprintf("a KV cache of %s beside weights (%s), activations, runtime and CUDA "+
			"graphs needs", gib(c.KVBytes), gib(p.Weights)), p.Usable+p.Graphs, p.Total,
			"lower kv-cache-memory-bytes, or "+c.larger()+"quantization (awq, gptq, fp8)")
	case p.Weights+p.Runtime > p.Usable:
		return oom("accelerator",
			fmt.Sprintf("the weights of %s on each of %d ranks and the runtime need", c.Hardware.Model.Name, ranks),
			p.Weights+p.Runtime, p.Usable,
			c.larger()+"quantization (awq, gptq, fp8) or a smaller model")
	case p.KV <= 0:
		return oom("accelerator",
			fmt.Sprintf("weights (%s), runtime (%s) and the activations of %d tokens and %d sequences need",
				gib(p.Weights), gib(p.Runtime), c.MaxNumBatchedTokens, c.MaxNumSeqs),
			p.Weights+p.Runtime+p.Activations, p.Usable,
			"lower max-num-batched-tokens or max-num-seqs, or use quantization")
	case sequence > p.KV:
		return oom("accelerator", fmt.Sprintf("the KV cache of one sequence of max-model-len %d needs", c.MaxModelLen),
			sequence, p.KV,
			fmt.Sprintf("lower max-model-len to at most %d or set it to auto, or raise gpu-memory-utilization",
				p.NumGPUBlocks*c.BlockSize))
	case p.Usable+p.Graphs > p.Total:
		return oom("accelerator",
			fmt.Sprintf("gpu-memory-utilization %g and the CUDA graphs of %d sequences need", c.GPUMemoryUtilization,
				c.MaxNumSeqs), p.Usable+p.Graphs, p.Total,
			"lower gpu-memory-utilization (0.9 to 0.85) or max-num-seqs, or enforce-eager")
	case c.HostLimitBytes > 0 && p.HostBytes > c.HostLimitBytes:
		return oom("host", fmt.Sprintf("%d ranks with %s of swap space each need", c.RanksPerPod,
			gib(c.SwapSpaceBytes)), p.HostBytes, c.HostLimitBytes,
			"raise the container's memory limit or lower swap-space")
	}
	return nil
}

// larger returns the smallest usual tensor parallel size at which everything fits and, for a mixture of experts, data
// parallel size; nothing if there is none.
func (c *MemoryConfig) larger() string {
	var ways []string
	for _, way := range []struct {
		flag string
		size func(g *Group) *int
	}{{"tensor", func(g *Group) *int { return &g.TP }}, {"data", func(g *Group) *int { return &g.DP }}} {
		h, more := *c.Hardware, *c
		size := way.size(&h.Group)
		for more.Hardware = &h; h.Group.Ranks() <= 32; {
			*size *= 2
			if p, err := PlanMemory(more); err == nil {
				ways = append(ways, fmt.Sprintf("--%s-parallel-size %d (%s on each rank)", way.flag, *size,
					gib(p.Weights+p.Runtime)))
				break
			}
		}
		if h.Model.Experts == 0 {
			break
		}
	}
	if len(ways) == 0 {
		return "use "
	}
	return "use " + strings.Join(ways, " or ") + ", "
}

// fill sets defaults and refuses impossible values.
func (c *MemoryConfig) fill() error {
	if c.Hardware == nil {
		return fmt.Errorf("memory: model and accelerator are missing; name them, or give num_gpu_blocks")
	}
	if err := c.Hardware.Check(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	c.GPUMemoryUtilization = cmp.Or(c.GPUMemoryUtilization, c.Hardware.VLLM.GPUMemoryUtilization)
	if !(c.GPUMemoryUtilization > 0 && c.GPUMemoryUtilization <= 1) {
		return fmt.Errorf("memory: gpu-memory-utilization is %g; expected above 0 and at most 1",
			c.GPUMemoryUtilization)
	}
	for _, f := range []struct {
		name     string
		value    *int
		standard int
		limit    int
	}{
		{"block-size", &c.BlockSize, 16, 4096}, {"max-num-seqs", &c.MaxNumSeqs, 256, 1 << 20},
		{"max-num-batched-tokens", &c.MaxNumBatchedTokens, 8192, 1 << 24},
		{"max-model-len", &c.MaxModelLen, c.Hardware.Model.MaxModelLen, 1 << 30},
		{"ranks per pod", &c.RanksPerPod, c.Hardware.Group.Ranks() / c.Hardware.Group.Nodes, 1024},
	} {
		*f.value = cmp.Or(*f.value, f.standard)
		if *f.value < 1 || *f.value > f.limit {
			return fmt.Errorf("memory: %s is %d; expected 1 to %d", f.name, *f.value, f.limit)
		}
	}
	if c.SwapSpaceBytes < 0 || c.SwapSpaceBytes > 1<<50 || c.HostLimitBytes < 0 {
		return fmt.Errorf("memory: swap space %d and memory limit %d must be bytes between 0 and 1 PiB",
			c.SwapSpaceBytes, c.HostLimitBytes)
	}
	return nil
}
