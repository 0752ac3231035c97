package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Fields of a model server that need others.
var (
	// needBatching are fields that need requests to share steps.
	needBatching = []string{"model", "modelConfig", "accelerator", "version", "tensorParallelSize", "dataParallelSize",
		"dataParallelSizeLocal", "enableExpertParallel", "nodes", "interconnect", "quantization",
		"kvCacheDType", "coefficients", "stepTimes", "source", "jitter", "profile", "chunkedPrefill",
		"longPrefillTokenThreshold", "maxNumPartialPrefills", "maxLongPartialPrefills", "schedulingPolicy",
		"numCPUBlocks", "swapSpace", "gpuMemoryUtilization", "kvCacheMemory", "enforceEager", "memoryLimit", "oom",
		"engineSteps", "maxLoras", "maxCPULoras", "loraLoadTime", "loraActivateTime"}
	// needHardware are fields that need a simulated accelerator.
	needHardware = []string{"modelConfig", "dataParallelSize", "enableExpertParallel", "nodes",
		"interconnect", "quantization", "kvCacheDType", "swapSpace",
		"gpuMemoryUtilization", "kvCacheMemory", "enforceEager", "memoryLimit", "oom"}
)

// checkHardware checks the source of a model server's step times, and the hardware.
func (s *checker) checkHardware(p *Pool, k *kind) {
	m := k.m
	bad := func(field, found, expected string) { s.bad(k.at(s, field), found, expected) }
	refuse := func(fields []string, found, expected string) {
		for _, field := range fields {
			if k.written(s, field) {
				bad(field, found, expected)
			}
		}
	}
	if m.Batching == Independent {
		refuse(needBatching, "given with batching independent, where each request takes its own prefill and "+
			"interTokenLatency",
			"batching: continuous, static or none beside it")
		return
	}
	m.constant = k.written(s, "prefill") || k.written(s, "interTokenLatency")
	given := []string{}
	for _, way := range []struct {
		name string
		used bool
	}{{"prefill or interTokenLatency", m.constant}, {"coefficients", m.Coefficients != Coefficients{}},
		{"stepTimes", m.StepTimes != ""}, {"source", m.Source != VLLMSource}} {
		if way.used {
			given = append(given, way.name)
		}
	}
	if len(given) > 1 {
		bad("", "several of "+strings.Join(given, ", ")+" are given", "one of them: each says how long a step takes")
	}
	if m.constant {
		constant := func(field string, d dist.Dist) {
			if !d.IsConstant() {
				bad(field, fmt.Sprintf("%s with batching %s, where requests share steps", d, m.Batching),
					"one duration, such as 200ms, or neither of prefill and interTokenLatency: the accelerator then "+
						"determines the times")
			}
		}
		constant("prefill", m.Prefill)
		constant("interTokenLatency", m.InterTokenLatency)
		refuse([]string{"accelerator"}, "given beside prefill or interTokenLatency",
			"one or the other: both say how long a step takes")
	}
	if m.constant || len(given) > 0 && m.StepTimes == "" && m.Source == VLLMSource && m.Accelerator == "" {
		refuse(needHardware, "given beside "+given[0]+", where no accelerator is simulated",
			"step times that come from an accelerator, or none of this")
	}
	if m.Calibration != "" && (len(given) > 0 || m.constant) {
		bad("calibration", "given beside "+given[0], "source: vllm, whose parameters it replaces")
	}
	if m.DataParallelSizeLocal > max(1, m.DataParallelSize) {
		bad("dataParallelSizeLocal", fmt.Sprintf("found %d", m.DataParallelSizeLocal),
			fmt.Sprintf("at most dataParallelSize, %d", max(1, m.DataParallelSize)))
	}
	if m.NumCPUBlocks > 0 && m.SwapSpace > 0 {
		bad("swapSpace", "given beside numCPUBlocks", "one of them")
	}
	if m.NumGPUBlocks > 0 && m.KVCacheMemory > 0 {
		bad("kvCacheMemory", "given beside numGPUBlocks", "one of them")
	}
	if m.MaxLoRAs > 0 && m.MaxCPULoRAs > 0 && m.MaxCPULoRAs < m.MaxLoRAs {
		bad("maxCPULoras", fmt.Sprintf("found %d", m.MaxCPULoRAs), fmt.Sprintf("at least maxLoras, %d", m.MaxLoRAs))
	}
	if _, err := latency.Coefficients(m.Coefficients).PerToken(); err != nil {
		field, why, _ := strings.Cut(err.Error(), ": ")
		bad("coefficients."+field, why, "")
	}
	s.checkNames(p, k)
}

// checkNames looks up the names of the hardware.
func (s *checker) checkNames(p *Pool, k *kind) {
	m := k.m
	ok := known(s, k, "interconnect.within", m.Interconnect.Within, hardware.FabricNamed)
	ok = known(s, k, "interconnect.between", m.Interconnect.Between, hardware.FabricNamed) && ok
	ok = known(s, k, "quantization", m.Quantization, modelshape.ParseQuantization) && ok
	ok = known(s, k, "kvCacheDType", m.KVCacheDType, modelshape.ParseDType) && ok
	ok = known(s, k, "version", m.Version, new(hardware.Accelerator).VLLM) && ok
	if m.Interconnect.Between != "" && m.Nodes < 2 {
		s.bad(k.at(s, "interconnect.between"), "given for a server on one node", "nodes: 2 or more beside it")
		ok = false
	}
	if m.constant || m.StepTimes != "" || m.Coefficients != (Coefficients{}) && m.Accelerator == "" {
		return // the file of stepTimes has names of its own, and is not read yet
	}
	if m.ModelConfig != "" { // not read yet, either
		known(s, k, "accelerator", m.acceleratorName(), hardware.AcceleratorNamed)
		return
	}
	ok = known(s, k, "accelerator", m.acceleratorName(), hardware.AcceleratorNamed) && ok
	if _, err := modelshape.Named(p.modelName(m)); err != nil {
		path := k.at(s, "model")
		if m.Model == "" { // the pool's
			path, _, _ = strings.Cut(k.path, ".")
			path += ".model"
		}
		s.bad(path, err.Error(), "")
		ok = false
	}
	if ok {
		field := "nodes"
		if m.EnableExpertParallel && !k.written(s, field) {
			field = "enableExpertParallel"
		}
		known(s, k, field, field, func(string) (*hardware.Hardware, error) { return p.names(m).Resolve() })
	}
}

// known reports whether find knows a name, at a field of a model server. An empty name is known.
func known[T any](s *checker, k *kind, field, name string, find func(string) (T, error)) bool {
	if name == "" {
		return true
	}
	_, err := find(name)
	if err != nil {
		s.bad(k.at(s, field), err.Error(), "")
	}
	return err == nil
}

// vllmFlags replaces vLLM's flags in errors about memory by the fields of a scenario.
var vllmFlags = strings.NewReplacer("--tensor-parallel-size", "tensorParallelSize", "--data-parallel-size",
	"dataParallelSize", "max-model-len", "maxModelLen", "gpu-memory-utilization", "gpuMemoryUtilization",
	"max-num-batched-tokens", "maxNumBatchedTokens", "max-num-seqs", "maxNumSeqs", "kv-cache-memory-bytes",
	"kvCacheMemory", "enforce-eager", "enforceEager", "swap-space", "swapSpace")

// checkEngines makes each pool's engine once, so that mistakes in it, its memory included, are found when the scenario
// is read.
func (s *checker) checkEngines() {
	for i := range s.Pools {
		p := &s.Pools[i]
		if len(p.Endpoints) > 0 {
			continue
		}
		for _, d := range p.Deployments() {
			c, err := s.engine(p, &d, d.First)
			if err == nil {
				err = c.Check()
			}
			if err != nil {
				path := fmt.Sprintf("pools[%d].modelServer", i)
				if k := slices.IndexFunc(p.Groups, func(g ServerGroup) bool { return g.Name == d.Group }); k >= 0 {
					path = fmt.Sprintf("pools[%d].groups[%d]", i, k)
				}
				s.bad(path, vllmFlags.Replace(strings.TrimPrefix(err.Error(), "pool "+p.Name+": ")), "")
			}
		}
		p.each(func(m *ModelServer) { m.hardware.ready = false }) // callers may change the scenario
	}
}
