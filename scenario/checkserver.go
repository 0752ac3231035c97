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

// Fields of a model server by what they need beside them.
var (
	// needBatching means something only where requests share steps.
	needBatching = []string{"model", "accelerator", "tensorParallelSize", "nodes", "interconnect", "quantization",
		"kvCacheDType", "coefficients", "stepTimes", "source", "jitter", "profile", "chunkedPrefill",
		"longPrefillTokenThreshold", "maxNumPartialPrefills", "maxLongPartialPrefills", "schedulingPolicy",
		"numCPUBlocks", "swapSpace", "gpuMemoryUtilization", "kvCacheMemory", "enforceEager", "memoryLimit", "oom",
		"engineSteps", "maxLoras", "maxCPULoras", "loraLoadTime", "loraActivateTime"}
	// needHardware is computed from an accelerator.
	needHardware = []string{"nodes", "interconnect", "quantization", "kvCacheDType", "swapSpace",
		"gpuMemoryUtilization", "kvCacheMemory", "enforceEager", "memoryLimit", "oom"}
)

// checkHardware tells where a model server's times come from, and what is
// wrong with it.
func (s *Scenario) checkHardware(p *Pool, k *kind) Problems {
	var out Problems
	m := k.m
	written := func(field string) bool { return k.written(s, field) }
	refuse := func(fields []string, found, expected string) {
		for _, field := range fields {
			if written(field) {
				out = append(out, k.problem(s, field, found, expected))
			}
		}
	}
	if m.Batching == Independent {
		refuse(needBatching, "given with batching independent, where each request takes its own prefill and "+
			"interTokenLatency",
			"batching: continuous, static or none beside it")
		return out
	}
	m.constant = written("prefill") || written("interTokenLatency")
	given := []string{}
	for _, way := range []struct {
		name string
		used bool
	}{{"prefill or interTokenLatency", m.constant}, {"coefficients", m.Coefficients != Coefficients{}},
		{"stepTimes", m.StepTimes != ""}, {"source", m.Source != MeasuredSource}} {
		if way.used {
			given = append(given, way.name)
		}
	}
	if len(given) > 1 {
		out = append(out, k.problem(s, "", "several of "+strings.Join(given, ", ")+" are given",
			"one of them: each says how long a step takes"))
	}
	if m.constant {
		for _, f := range []struct {
			name string
			dist dist.Dist
		}{{"prefill", m.Prefill}, {"interTokenLatency", m.InterTokenLatency}} {
			if !f.dist.IsConstant() {
				out = append(out, k.problem(s, f.name,
					fmt.Sprintf("%s with batching %s, where requests share steps", f.dist, m.Batching),
					"one duration, such as 200ms, or neither of prefill and interTokenLatency: the accelerator then "+
						"tells the times"))
			}
		}
		refuse([]string{"accelerator"}, "given beside prefill or interTokenLatency",
			"one or the other: both say how long a step takes")
	}
	if m.constant || len(given) > 0 && m.StepTimes == "" && m.Source == MeasuredSource && m.Accelerator == "" {
		refuse(needHardware, "given beside "+given[0]+", where no accelerator is simulated",
			"step times that come from an accelerator, or none of this")
	}
	if m.NumCPUBlocks > 0 && m.SwapSpace > 0 {
		out = append(out, k.problem(s, "swapSpace", "given beside numCPUBlocks", "one of them"))
	}
	if m.NumGPUBlocks > 0 && m.KVCacheMemory > 0 {
		out = append(out, k.problem(s, "kvCacheMemory", "given beside numGPUBlocks", "one of them"))
	}
	if m.MaxLoRAs > 0 && m.MaxCPULoRAs > 0 && m.MaxCPULoRAs < m.MaxLoRAs {
		out = append(out, k.problem(s, "maxCPULoras", fmt.Sprintf("found %d", m.MaxCPULoRAs),
			fmt.Sprintf("at least maxLoras, %d", m.MaxLoRAs)))
	}
	if _, err := latency.Coefficients(m.Coefficients).PerToken(); err != nil {
		field, why, _ := strings.Cut(err.Error(), ": ")
		out = append(out, k.problem(s, "coefficients."+field, why, ""))
	}
	return append(out, s.checkNames(p, k)...)
}

// checkNames looks every name of the hardware up, each at its own line.
func (s *Scenario) checkNames(p *Pool, k *kind) Problems {
	var out Problems
	m := k.m
	add := func(field string, err error) {
		if err != nil {
			out = append(out, k.problem(s, field, err.Error(), ""))
		}
	}
	named := func(field, name string, find func(string) error) {
		if name != "" {
			add(field, find(name))
		}
	}
	fabric := func(name string) error { _, err := hardware.FabricNamed(name); return err }
	named("interconnect.within", m.Interconnect.Within, fabric)
	named("interconnect.between", m.Interconnect.Between, fabric)
	named("quantization", m.Quantization,
		func(name string) error { _, err := modelshape.ParseQuantization(name); return err })
	named("kvCacheDType", m.KVCacheDType, func(name string) error { _, err := modelshape.ParseDType(name); return err })
	if m.Interconnect.Between != "" && m.Nodes < 2 {
		out = append(out, k.problem(s, "interconnect.between", "given for a server on one node",
			"nodes: 2 or more beside it"))
	}
	if m.constant || m.StepTimes != "" || m.Coefficients != (Coefficients{}) && m.Accelerator == "" {
		return out // the file of stepTimes has names of its own, and is not read yet
	}
	if _, err := hardware.AcceleratorNamed(m.acceleratorName()); err != nil {
		add("accelerator", err)
	} else if _, err := modelshape.Named(p.modelName(m)); err != nil {
		add("model", err)
	} else if len(out) == 0 {
		_, err := p.names(m).Resolve()
		add("nodes", err)
	}
	return out
}

// checkEngines makes each pool's engine once, so that what is wrong with it,
// its memory included, is told when the scenario is read.
func (s *Scenario) checkEngines() Problems {
	var out Problems
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
				out = append(out, s.problem(path, strings.TrimPrefix(err.Error(), "pool "+p.Name+": "), ""))
			}
		}
		p.each(func(m *ModelServer) { m.hardware.ready = false }) // whoever changes the scenario in memory is heard
	}
	return out
}
