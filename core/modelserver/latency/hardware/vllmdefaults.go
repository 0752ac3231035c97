package hardware

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DefaultVLLM is the release of vLLM that servers run if nobody names one.
const DefaultVLLM = "0.19.0"

// VLLM holds what one release of vLLM's API server does on one accelerator if its command line does not name it.
type VLLM struct {
	Version                         string
	MaxNumSeqs, MaxNumBatchedTokens int
	GPUMemoryUtilization            float64
	// GraphsCounted reports whether the memory of CUDA graphs is a part of GPUMemoryUtilization.
	GraphsCounted bool
	// AsyncScheduling reports whether the engine prepares a step while the step before it runs.
	AsyncScheduling bool
	// SlowPrefill reports whether the kernels of a prompt are launched as slowly as before 0.12: measured servers took
	// some 0.3 ms longer for each layer (docs/silicon.md).
	SlowPrefill bool
	// FullGraphs reports whether the CUDA graph of a decode step has attention, too.
	FullGraphs bool
	// The largest number of sequences with a CUDA graph, and the distance between sizes above 256.
	maxGraph, graphStep int
}

// vllmReleases are the changes of defaults, from vllm/engine/arg_utils.py, vllm/config and release notes.
var vllmReleases = []struct {
	since  [3]int
	change func(v *VLLM, a *Accelerator)
}{
	{[3]int{0, 8, 0}, func(v *VLLM, a *Accelerator) {
		v.SlowPrefill, v.GPUMemoryUtilization, v.maxGraph, v.graphStep = true, 0.9, 512, 8
		if v.limits(1024, 2048); strings.HasPrefix(a.Name, "H100") || a.Name == "H200" {
			v.limits(1024, 8192)
		}
	}},
	{[3]int{0, 8, 5}, func(v *VLLM, a *Accelerator) {
		if v.limits(256, 2048); a.MemoryBytes >= 70<<30 {
			v.limits(1024, 8192)
		}
	}},
	{[3]int{0, 9, 0}, func(v *VLLM, a *Accelerator) {
		if a.Name == "A100-80GB" {
			v.limits(256, 2048)
		}
	}},
	{[3]int{0, 11, 0}, func(v *VLLM, _ *Accelerator) { v.FullGraphs = true }},
	{[3]int{0, 11, 1}, func(v *VLLM, _ *Accelerator) { v.graphStep = 16 }},
	{[3]int{0, 12, 0}, func(v *VLLM, _ *Accelerator) { v.SlowPrefill = false }},
	{[3]int{0, 14, 0}, func(v *VLLM, _ *Accelerator) { v.AsyncScheduling = true }},
	{[3]int{0, 20, 0}, func(v *VLLM, _ *Accelerator) { v.GPUMemoryUtilization, v.GraphsCounted = 0.92, true }},
	{[3]int{0, 28, 0}, func(v *VLLM, a *Accelerator) {
		if a.MemoryBytes >= 160<<30 {
			v.limits(1024, 16384)
		}
		if a.FP4TFLOPS > 0 {
			v.maxGraph = 1024
		}
	}},
}

func (v *VLLM) limits(sequences, tokens int) { v.MaxNumSeqs, v.MaxNumBatchedTokens = sequences, tokens }

// VLLM returns the defaults of a release on the accelerator: of a version such as 0.19.0 or v0.11.2rc1. The empty text
// is DefaultVLLM.
func (a *Accelerator) VLLM(version string) (VLLM, error) {
	version = cmp.Or(version, DefaultVLLM)
	v := VLLM{Version: strings.TrimPrefix(version, "v")}
	var release [3]int
	parts := strings.SplitN(v.Version, ".", 3)
	for i, part := range parts {
		digits := strings.IndexFunc(part+" ", func(r rune) bool { return r < '0' || r > '9' })
		n, err := strconv.Atoi(part[:digits])
		if err != nil || n > 9999 || i < 2 && digits < len(part) {
			parts = nil
			break
		}
		release[i] = n
	}
	if len(parts) < 2 || len(version) > 64 || slices.Compare(release[:], vllmReleases[0].since[:]) < 0 {
		return VLLM{}, fmt.Errorf("vLLM version %.80q: expected a release from 0.8.0 on, such as %s", version,
			DefaultVLLM)
	}
	for _, r := range vllmReleases {
		if slices.Compare(release[:], r.since[:]) >= 0 {
			r.change(&v, a)
		}
	}
	return v, nil
}

// GraphSize returns the number of sequences of the CUDA graph that runs a decode step of that many, which are padded; 0
// if the step runs without one.
func (v *VLLM) GraphSize(sequences int) int {
	step := 8
	switch {
	case sequences > v.maxGraph:
		return 0
	case sequences <= 2:
		return sequences
	case sequences <= 4:
		return 4
	case sequences > 256:
		step = v.graphStep
	}
	return (sequences + step - 1) / step * step
}

// ImageVersion returns the release of vLLM in the tag of a container image of vllm-openai; "" if the tag does not name
// one whose defaults are known.
func ImageVersion(image string) string {
	name, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	tag, _, _ = strings.Cut(tag, "@")
	if _, err := new(Accelerator).VLLM(tag); err != nil || name != "vllm-openai" || tag == "" {
		return ""
	}
	return strings.TrimPrefix(tag, "v")
}
