package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// pooledHardware is the hardware of a pool's model servers. It is resolved once for all replicas, since a large pool
// has thousands.
type pooledHardware struct {
	measured    []latency.Measured       // from stepTimes
	calibration *latency.CalibrationFile // from calibration
	shape       *modelshape.Shape        // from modelConfig; nil without one
	ready       bool
	timer       *latency.Timer
	model       *hardware.Hardware // nil where step times were given without an accelerator
	plan        hardware.MemoryPlan
	oom         *hardware.OutOfMemoryError // only with oom: restart
}

// defaultAccelerator is the accelerator of a batching model server whose scenario names none.
const defaultAccelerator = "H100"

// wholePromptTokens is the default of the most tokens in a step, and of the longest sequence of a server that computes
// each prompt in one step: the activations of such a step grow with it.
const wholePromptTokens = 8192

// steps sets the timer, the KV blocks and the profile's defaults of an engine that batches.
func (s *Scenario) steps(p *Pool, d *Deployment, index int, c *engine.Config) error {
	m := d.server
	h := &m.hardware
	if !h.ready {
		if err := s.prepare(p, m); err != nil {
			return err
		}
		h.ready = true
	}
	m.schedulerDefaults(c)
	c.Timer = h.timer.For(d.serverName(index))
	if h.plan.BlockBytes > 0 {
		tokens := int64(cmp.Or(c.BlockSize, defaultBlockTokens))
		c.KVBytesPerToken = max(1, h.plan.BlockBytes*int64(h.model.Group.TP)/tokens)
		c.NumCPUBlocks = cmp.Or(c.NumCPUBlocks, h.plan.NumCPUBlocks)
		c.NumGPUBlocks = cmp.Or(c.NumGPUBlocks, h.plan.NumGPUBlocks)
	}
	if h.oom != nil { // it never serves, but its engine must exist
		c.NumGPUBlocks = max(c.NumGPUBlocks, c.MaxModelLen)
	}
	return nil
}

// schedulerDefaults sets the profile's defaults.
func (m *ModelServer) schedulerDefaults(c *engine.Config) {
	h := m.hardware.model
	if m.Profile == VLLMProfile {
		a, err := hardware.AcceleratorNamed(m.acceleratorName())
		if v, bad := a.VLLM(m.Version); err == nil && bad == nil { // otherwise the names were refused
			c.MaxNumBatchedTokens = cmp.Or(c.MaxNumBatchedTokens, max(v.MaxNumBatchedTokens, c.MaxNumSeqs))
			c.MaxNumSeqs = cmp.Or(c.MaxNumSeqs, min(v.MaxNumSeqs, c.MaxNumBatchedTokens))
		}
	}
	if h != nil && c.MaxModelLen == 0 {
		c.MaxModelLen = h.Model.MaxModelLen
		if m.Profile == DocumentProfile && !m.ChunkedPrefill {
			c.MaxModelLen = min(c.MaxModelLen, wholePromptTokens)
		}
		if blocks := cmp.Or(c.NumGPUBlocks, m.hardware.plan.NumGPUBlocks); blocks > 0 { // sequences must fit into them
			c.MaxModelLen = min(c.MaxModelLen, blocks*cmp.Or(c.BlockSize, defaultBlockTokens))
		}
	}
	if m.MaxNumBatchedTokens == 0 && !m.ChunkedPrefill {
		// as vLLM
		c.MaxNumBatchedTokens = max(cmp.Or(c.MaxNumBatchedTokens, wholePromptTokens),
			cmp.Or(c.MaxModelLen, wholePromptTokens))
	}
	if m.MaxNumBatchedTokens == 0 && c.MaxNumSeqs > 8192 {
		c.MaxNumBatchedTokens = max(c.MaxNumBatchedTokens, c.MaxNumSeqs)
	}
}

// prepare makes the timer and plans the accelerator's memory.
func (s *Scenario) prepare(p *Pool, m *ModelServer) error {
	h := &m.hardware
	config := latency.Config{Seed: s.Seed, Component: "step",
		Jitter: latency.Jitter{Factor: m.Jitter.Factor, Extra: m.Jitter.Extra}}
	var err error
	h.model, h.plan, h.oom = nil, hardware.MemoryPlan{}, nil
	switch {
	case m.constant:
		config.Kind, config.Constant = latency.KindConstant, latency.Constant{
			TimeToFirstToken:  machine.Time(m.Prefill.Quantile(0.5)),
			InterTokenLatency: machine.Time(m.InterTokenLatency.Quantile(0.5))}
	case m.Coefficients != (Coefficients{}):
		config.Kind = latency.KindPerToken
		if config.PerToken, err = latency.Coefficients(m.Coefficients).PerToken(); err == nil && m.Accelerator != "" {
			h.model, err = p.names(m).Resolve()
		}
	case m.StepTimes != "":
		config.Kind = latency.KindTable
		config.Points, h.model, err = p.measured(m)
	default:
		if config.Kind = latency.Kind(m.Source); m.Source == MeasuredSource {
			config.Kind = latency.KindAuto
		}
		config.Calibration = h.calibration
		h.model, err = p.names(m).Resolve()
	}
	if err != nil {
		return err
	}
	config.Hardware = h.model
	if h.timer, err = latency.New(config); err != nil {
		return err
	}
	if doubt := h.timer.Doubt(); doubt != "" {
		s.assume(fmt.Sprintf("pool %s: %s", p.Name, doubt))
	}
	if h.model == nil {
		return nil
	}
	return m.planMemory()
}

// planMemory computes the number of KV blocks. The scenario's own number needs no check.
func (m *ModelServer) planMemory() error {
	h := &m.hardware
	c := engine.Config{MaxNumSeqs: m.MaxNumSeqs, MaxNumBatchedTokens: m.MaxNumBatchedTokens,
		MaxModelLen: max(0, int(m.MaxModelLen)), BlockSize: m.BlockSize, NumGPUBlocks: m.NumGPUBlocks}
	m.schedulerDefaults(&c)
	if m.MaxModelLen == AutoModelLen || m.MaxModelLen == 0 && m.Profile == DocumentProfile {
		c.MaxModelLen = 1 // what memory holds limits the sequences, and not the other way round
	}
	var err error
	h.plan, err = hardware.PlanMemory(hardware.MemoryConfig{Hardware: h.model, BlockSize: c.BlockSize,
		GPUMemoryUtilization: m.GPUMemoryUtilization, MaxNumSeqs: c.MaxNumSeqs,
		MaxNumBatchedTokens: c.MaxNumBatchedTokens, MaxModelLen: c.MaxModelLen, EnforceEager: m.EnforceEager,
		KVBytes: int64(m.KVCacheMemory), SwapSpaceBytes: int64(m.SwapSpace), HostLimitBytes: int64(m.MemoryLimit)})
	var oom *hardware.OutOfMemoryError
	switch {
	case errors.As(err, &oom) && m.NumGPUBlocks > 0 && oom.Where == "accelerator":
		return nil
	case errors.As(err, &oom) && m.OOM == OOMRestart:
		h.oom = oom
		return nil
	}
	return err
}

// outOfMemory returns why such model servers are killed repeatedly; nil if they fit.
func (m *ModelServer) outOfMemory() error {
	if m.hardware.oom == nil {
		return nil
	}
	return m.hardware.oom
}

// memoryTaken returns the bytes of an accelerator's memory that are used beside the KV cache, 0 without an accelerator.
// It needs prepare.
func (m *ModelServer) memoryTaken() int64 {
	plan := &m.hardware.plan
	return plan.Weights + plan.Activations + plan.Runtime
}

func (m *ModelServer) acceleratorName() string { return cmp.Or(m.Accelerator, defaultAccelerator) }

func (p *Pool) modelName(m *ModelServer) string { return cmp.Or(m.Model, p.Model) }

// names returns the names of the hardware.
func (p *Pool) names(m *ModelServer) hardware.Names {
	return hardware.Names{Model: p.modelName(m), Accelerator: m.acceleratorName(), TP: m.TensorParallelSize,
		DP: m.DataParallelSize, EP: m.EnableExpertParallel, Version: m.Version, Nodes: m.Nodes,
		Within: m.Interconnect.Within, Between: m.Interconnect.Between, Quantization: m.Quantization,
		KVCacheDType: m.KVCacheDType, Shape: m.hardware.shape}
}

// measured finds a server's points in the file of stepTimes: those of its model, accelerator and tensor parallel size,
// or the only ones in the file. The Hardware, if the catalogues know it, bounds how fast the points may be.
func (p *Pool) measured(m *ModelServer) ([]latency.Point, *hardware.Hardware, error) {
	all := m.hardware.measured
	names := p.names(m)
	chosen := -1
	var have []string
	for i := range all {
		have = append(have, fmt.Sprintf("%s on %s with TP %d", all[i].Model, all[i].System, all[i].TP))
		if sameModel(all[i].Model, names.Model) && sameAccelerator(all[i].System, names.Accelerator) &&
			all[i].TP == max(names.TP, 1) {
			if chosen >= 0 {
				return nil, nil, fmt.Errorf("%s has %s twice, of two backends; keep one of them", m.StepTimes, have[i])
			}
			chosen = i
		}
	}
	if chosen < 0 && len(all) == 1 && m.Accelerator == "" && m.Model == "" && m.TensorParallelSize == 0 {
		chosen = 0
		names.Model, names.Accelerator, names.TP = all[0].Model, all[0].System, all[0].TP
	}
	if chosen < 0 {
		return nil, nil, fmt.Errorf("%s has no points of %s on %s with TP %d; it has %s", m.StepTimes, names.Model,
			names.Accelerator, max(names.TP, 1), strings.Join(have, ", "))
	}
	h, err := names.Resolve()
	if err != nil && m.Accelerator == "" && m.Model == "" {
		return all[chosen].Points, nil, nil // hardware of the user's own, with no known peak that bounds the points
	}
	return all[chosen].Points, h, err
}

func sameModel(a, b string) bool {
	x, err1 := modelshape.Named(a)
	y, err2 := modelshape.Named(b)
	return strings.EqualFold(a, b) || err1 == nil && err2 == nil && x.Name == y.Name
}

func sameAccelerator(a, b string) bool {
	x, err1 := hardware.AcceleratorNamed(a)
	y, err2 := hardware.AcceleratorNamed(b)
	return strings.EqualFold(a, b) || err1 == nil && err2 == nil && x.Name == y.Name
}

// readHardware reads the files of modelConfig, calibration and stepTimes.
func (s *checker) readHardware(p *Pool, k *kind, dir string) {
	m := k.m
	read := func(field, name string, most int64, parse func(file string, text []byte) error) {
		s.readFile(k.at(s, field), dir, name, "", most, parse)
	}
	read("calibration", m.Calibration, MaxFileBytes, func(file string, text []byte) (err error) {
		m.hardware.calibration, err = latency.ParseCalibration(file, text)
		return err
	})
	read("stepTimes", m.StepTimes, MaxFileBytes, func(file string, text []byte) (err error) {
		m.hardware.measured, err = latency.ParseCSV(file, string(text))
		if err == nil && len(m.hardware.measured) == 0 {
			err = fmt.Errorf("%s: there are no points in it", file)
		}
		return err
	})
	read("modelConfig", m.ModelConfig, modelshape.MaxConfigBytes, func(file string, text []byte) error {
		shape, err := modelshape.ParseConfig(file, text)
		shape.Name = p.modelName(m)
		m.hardware.shape = &shape
		return err
	})
}

// ranks returns how many servers each replica has: its data-parallel ranks.
func (m *ModelServer) ranks() int { return max(1, cmp.Or(m.DataParallelSizeLocal, m.DataParallelSize)) }
