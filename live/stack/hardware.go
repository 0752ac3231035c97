package stack

import (
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// setHardware tells a model server what its hardware is, for its metrics, and what
// becomes of it where that is too small.
func setHardware(p *scenario.Pool, m *scenario.ModelServer, so *modelserver.ServerOptions) {
	for _, name := range m.LoRAAdapters {
		so.Adapters = append(so.Adapters, modelserver.Adapter{Name: name})
	}
	so.Tokenizer, so.TokenizerJSON, so.ChatTemplate = p.Tokenizer(), p.TokenizerJSON(), p.Template()
	so.TensorParallel = max(1, m.TensorParallelSize)
	so.MemoryBytes = m.MemoryTaken()
	so.OutOfMemory = m.OutOfMemory()
	so.Steps = m.StepDetail()
}
