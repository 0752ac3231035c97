package hardware

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Names is hardware as users write it: names from the catalogues, in the spelling of vLLM's flags where there is one.
type Names struct {
	Model       string
	Accelerator string
	TP, DP      int    // tensor and data parallel size; 0 is 1
	EP          bool   // --enable-expert-parallel
	Nodes       int    // 0 is 1
	Within      string // fabric within a node; empty is the accelerator's own
	Between     string // fabric between nodes; empty is document 003's InfiniBand
	// NCCLIBDisable is the environment variable NCCL_IB_DISABLE, which replaces InfiniBand between nodes by Ethernet.
	NCCLIBDisable bool
	Quantization  string // --quantization; empty is how the weights are published
	KVCacheDType  string // --kv-cache-dtype
	// Version is the release of vLLM; empty is DefaultVLLM.
	Version string
	// Shape, if set, replaces the lookup of Model.
	Shape *modelshape.Shape
}

// Resolve looks up every name.
func (n Names) Resolve() (*Hardware, error) {
	h := &Hardware{}
	var err error
	if n.Shape != nil {
		h.Model = *n.Shape
	} else if h.Model, err = modelshape.Named(n.Model); err != nil {
		return nil, err
	}
	if h.Accelerator, err = AcceleratorNamed(n.Accelerator); err != nil {
		return nil, err
	}
	if h.VLLM, err = h.Accelerator.VLLM(n.Version); err != nil {
		return nil, err
	}
	if h.Weights, err = h.Model.Weights(n.Quantization); err != nil {
		return nil, err
	}
	if h.KV, err = modelshape.ParseDType(n.KVCacheDType); err != nil {
		return nil, fmt.Errorf("kv-cache-dtype: %w", err)
	}
	h.Group = Group{TP: max(n.TP, 1), DP: max(n.DP, 1), EP: n.EP, Nodes: max(n.Nodes, 1), Within: h.Accelerator.Fabric,
		Between: InfiniBand200}
	if n.TP < 0 || n.DP < 0 || n.Nodes < 0 {
		return nil, fmt.Errorf("tensor parallel size %d, data parallel size %d and nodes %d must not be negative", n.TP,
			n.DP, n.Nodes)
	}
	if n.Within != "" {
		if h.Group.Within, err = FabricNamed(n.Within); err != nil {
			return nil, err
		}
	}
	if n.Between != "" {
		if h.Group.Between, err = FabricNamed(n.Between); err != nil {
			return nil, err
		}
	}
	if n.NCCLIBDisable && strings.HasPrefix(h.Group.Between.Name, "infiniband") {
		h.Group.Between = Ethernet100
	}
	return h, h.Check()
}
