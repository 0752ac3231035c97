package stack

import (
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// setHardware tells a model server what its hardware is, for its metrics, and what
// becomes of it where that is too small.
func setHardware(p *scenario.Pool, so *modelserver.ServerOptions) {
	m := &p.ModelServer
	for _, name := range m.LoRAAdapters {
		so.Adapters = append(so.Adapters, modelserver.Adapter{Name: name})
	}
	so.Tokenizer, so.TokenizerJSON, so.ChatTemplate = p.Tokenizer(), p.TokenizerJSON(), p.Template()
	so.TensorParallel = max(1, m.TensorParallelSize)
	so.MemoryBytes = p.MemoryTaken()
	so.OutOfMemory = p.OutOfMemory()
	so.Steps = m.StepDetail()
}
