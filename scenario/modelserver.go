package scenario

import "github.com/windtunnel/windtunnel/core/modelserver/latency/dist"

// Interconnect names the links between the accelerators of one model server: nvlink, nvlink4, nvlink5, pcie4, pcie5,
// infinity-fabric, infiniband, infiniband-400, roce-100, ethernet, ethernet-10 or ethernet-25.
type Interconnect struct {
	// Between the accelerators of one node. Left out: the accelerator's own.
	Within string `json:"within"`
	// Between nodes. Left out: InfiniBand at 200 Gb/s.
	Between string `json:"between"`
}

// Coefficients are the parts of a step's time, each a span such as 6.1ms, 20us or 44ps. The default is 0.
type Coefficients struct {
	// Every step.
	Step string `json:"step"`
	// A step that computes a part of a prompt.
	PrefillOverhead string `json:"prefillOverhead"`
	// For each prompt token.
	PrefillToken string `json:"prefillToken"`
	// For each sequence that decodes.
	DecodeSequence string `json:"decodeSequence"`
	// For each token that a decoding sequence attends to.
	ContextToken string `json:"contextToken"`
}

// Jitter varies the times of steps.
type Jitter struct {
	// The factor of a step's time, for instance 1±10% or lognormal(1, 0.05).
	Factor dist.Dist `json:"factor" unit:"factor"`
	// The time added to a step, for instance empirical(0s*99, 5ms).
	Extra dist.Dist `json:"extra"`
}
