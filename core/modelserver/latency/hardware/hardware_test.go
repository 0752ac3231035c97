package hardware_test

import (
	"errors"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Every arrangement of NVIDIA's published sample of measurements fits, with the KV cache of two of its longest
// requests: tokens is the length of prompt and answer.
func TestMeasuredArrangementsFit(t *testing.T) {
	for _, c := range []struct {
		model, accelerator string
		kv                 string
		tokens             int
		quantizations      []string
		groups             []group
	}{
		{"MiniMaxAI/MiniMax-M2.5", "b200_sxm", "fp8", 9216, []string{"nvfp4"},
			[]group{{1, 1, true}, {2, 1, false}, {1, 2, true}, {4, 1, false}, {1, 4, true}, {8, 1, false}}},
		{"MiniMaxAI/MiniMax-M2.5", "b200_sxm", "fp8", 9216, []string{"fp8"},
			[]group{{2, 1, false}, {2, 1, true}, {1, 2, true}, {4, 1, false}, {1, 4, true}}},
		{"MiniMaxAI/MiniMax-M2.5", "b300_sxm", "fp8", 9216, []string{"nvfp4", "fp8"},
			[]group{{1, 1, false}, {2, 1, false}, {1, 2, true}, {4, 1, false}, {1, 4, true}, {8, 1, false}}},
		{"MiniMaxAI/MiniMax-M2.5", "h200_sxm", "auto", 9216, []string{"fp8"}, []group{{4, 1, false}, {8, 1, false}}},
		{"Qwen/Qwen3-235B-A22B-FP8", "h200_sxm", "auto", 10000, []string{""},
			[]group{{1, 2, false}, {1, 4, false}, {2, 1, false}, {2, 1, true}, {4, 1, false}}},
		{"Qwen/Qwen3-32B", "h100_sxm", "auto", 5120, []string{"", "fp8"}, []group{{2, 1, false}, {4, 1, false},
			{8, 1, false}}},
		{"Qwen/Qwen3-32B", "h100_sxm", "auto", 5000, []string{"fp8"}, []group{{1, 1, false}}},
		{"meta-llama/Llama-3.1-70B", "b200_sxm", "fp8", 9216, []string{"nvfp4", "fp8"},
			[]group{{1, 1, false}, {2, 1, false}, {4, 1, false}, {8, 1, false}}},
		{"meta-llama/Llama-3.1-70B", "h100_sxm", "auto", 9216, []string{"fp8"},
			[]group{{2, 1, false}, {4, 1, false}, {8, 1, false}}},
		{"meta-llama/Llama-3.1-70B", "h200_sxm", "auto", 9216, []string{"fp8"}, []group{{1, 1, false}}},
		{"moonshotai/Kimi-K2.5", "b200_sxm", "fp8", 9216, []string{"nvfp4"},
			[]group{{4, 1, false}, {4, 1, true}, {1, 4, true}, {8, 1, false}}},
		{"moonshotai/Kimi-K2.5", "b200_sxm", "fp8", 9216, []string{""}, []group{{8, 1, false}}},
		{"moonshotai/Kimi-K2.5", "b300_sxm", "fp8", 9216, []string{"nvfp4"},
			[]group{{4, 1, false}, {4, 1, true}, {8, 1, false}}},
		{"nvidia/Llama-3.1-8B-Instruct-FP8", "h200_sxm", "auto", 10000, []string{""},
			[]group{{1, 1, false}, {2, 1, false}, {4, 1, false}, {8, 1, false}}},
		{"openai/gpt-oss-120b", "h100_sxm", "auto", 9216, []string{""}, []group{{2, 1, false}, {4, 1, false},
			{8, 1, false}}},
		{"openai/gpt-oss-120b", "h200_sxm", "auto", 9216, []string{""},
			[]group{{1, 1, false}, {2, 1, false}, {4, 1, false}, {8, 1, false}}},
	} {
		for _, q := range c.quantizations {
			for _, g := range c.groups {
				h, err := hardware.Names{Model: c.model, Accelerator: c.accelerator, Quantization: q, TP: g.tp,
					DP: g.dp, EP: g.ep, KVCacheDType: c.kv}.Resolve()
				if err != nil {
					t.Fatal(err)
				}
				p, err := hardware.PlanMemory(hardware.MemoryConfig{Hardware: h, MaxModelLen: c.tokens})
				if err != nil || p.NumGPUBlocks*16 < 2*c.tokens {
					t.Errorf("%s %s on %s, %+v: %d tokens of KV cache; %v", c.model, q, c.accelerator, g,
						p.NumGPUBlocks*16, err)
				}
			}
		}
	}
	h, err := hardware.Names{Model: "Qwen/Qwen3-235B-A22B-FP8", Accelerator: "h200_sxm"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	var oom *hardware.OutOfMemoryError
	if _, err = hardware.PlanMemory(hardware.MemoryConfig{Hardware: h, MaxModelLen: 8192}); !errors.As(err, &oom) {
		t.Errorf("235 GB of weights on one H200: %v", err)
	}
}

type group struct {
	tp, dp int
	ep     bool
}

// The sizes of the published checkpoints (safetensors on the hub), in GB, divided as vLLM divides them.
func TestWeightBytes(t *testing.T) {
	for _, c := range []struct {
		model, quantization string
		group               group
		want                float64
	}{
		{"openai/gpt-oss-120b", "", group{1, 1, false}, 65.2},
		{"openai/gpt-oss-20b", "", group{1, 1, false}, 13.8},
		{"MiniMaxAI/MiniMax-M2.5", "", group{1, 1, false}, 230},
		{"MiniMaxAI/MiniMax-M2.5", "modelopt_fp4", group{1, 1, false}, 134.5}, // attention in 16 bits
		{"moonshotai/Kimi-K2.5", "compressed-tensors", group{1, 1, false}, 594},
		{"deepseek-ai/DeepSeek-R1", "", group{1, 1, false}, 673},
		// 227.1 GB of experts, 6.8 GB of other matrices, and 2.5 GB in 16 bits, which every engine has.
		{"Qwen/Qwen3-235B-A22B-FP8", "", group{2, 1, false}, 118.2},
		{"Qwen/Qwen3-235B-A22B-FP8", "", group{1, 2, false}, 122.9},
		{"Qwen/Qwen3-235B-A22B-FP8", "", group{1, 2, true}, 122.9},
		{"Qwen/Qwen3-235B-A22B-FP8", "", group{1, 3, true}, 85.5}, // 43 of 128 experts
	} {
		h, err := hardware.Names{Model: c.model, Accelerator: "B300", Quantization: c.quantization, TP: c.group.tp,
			DP: c.group.dp, EP: c.group.ep}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(h.WeightBytes()) / 1e9; got < .99*c.want || got > 1.01*c.want {
			t.Errorf("%s %s, %+v: %.1f GB on each rank, expected %.1f", c.model, c.quantization, c.group, got, c.want)
		}
	}
	if _, err := (hardware.Names{Model: "Llama-3.1-8B", Accelerator: "H100", EP: true}).Resolve(); err == nil {
		t.Error("a model without experts is spread by experts")
	}
}

// The arithmetic of one query and one key: MLA multiplies 192 and 128 elements of each head with a prompt's keys and
// values, 576 and 512 with cached ones.
func TestPairFLOP(t *testing.T) {
	m, err := modelshape.Named("DeepSeek-V3")
	if err != nil {
		t.Fatal(err)
	}
	if p, d := m.PairFLOP(), m.DecodePairFLOP(); p != 61*128*2*(192+128) || d != 61*128*2*(576+512) {
		t.Errorf("%d FLOP in a prompt and %d in decode", p, d)
	}
	if m.AttentionParams() != 61*187_105_280 {
		t.Errorf("%d parameters of attention", m.AttentionParams())
	}
	if m, err = modelshape.Named("Llama-3.1-70B"); err != nil || m.PairFLOP() != 80*64*128*4 ||
		m.DecodePairFLOP() != m.PairFLOP() {
		t.Errorf("grouped-query attention: %d, %v", m.PairFLOP(), err)
	}
}

// An engine's collectives cross nodes where its own ranks do; those of the experts where any do.
func TestGroupsOverNodes(t *testing.T) {
	h, err := hardware.Names{Model: "DeepSeek-R1", Accelerator: "H200", TP: 8, DP: 2, Nodes: 2}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	whole := h.Group.Whole()
	alone := h.Group
	alone.DP, alone.Nodes = 1, 1
	if h.Group.Ranks() != 16 || h.Group.AllReduce(1<<20) != alone.AllReduce(1<<20) ||
		whole.AllReduce(1<<20) < 5*alone.AllReduce(1<<20) {
		t.Errorf("%d ranks; all-reduce %d ns, of all %d ns", h.Group.Ranks(), h.Group.AllReduce(1<<20),
			whole.AllReduce(1<<20))
	}
	uneven := hardware.Names{Model: "DeepSeek-R1", Accelerator: "H200", TP: 2, DP: 3, Nodes: 4}
	if _, err = uneven.Resolve(); err == nil {
		t.Error("6 ranks on 4 nodes")
	}
}

// The defaults of vLLM's API server by release and accelerator.
func TestVLLMDefaults(t *testing.T) {
	for _, c := range []struct {
		version, accelerator string
		sequences, tokens    int
		utilization          float64
		async, full          bool
	}{
		{"0.8.0", "H200", 1024, 8192, .9, false, false},
		{"0.8.4", "B200", 1024, 2048, .9, false, false},
		{"v0.8.5.post1", "B200", 1024, 8192, .9, false, false},
		{"0.8.5", "A100", 1024, 8192, .9, false, false},
		{"0.9.0", "A100", 256, 2048, .9, false, false},
		{"0.11.0", "MI300X", 1024, 8192, .9, false, true},
		{"0.13", "L40S", 256, 2048, .9, false, true},
		{"", "H100", 1024, 8192, .9, true, true},
		{"0.20.1rc0", "H100", 1024, 8192, .92, true, true},
		{"0.27.1", "B300", 1024, 8192, .92, true, true},
		{"0.28.0", "H200", 1024, 8192, .92, true, true},
		{"1.2.3", "B300", 1024, 16384, .92, true, true},
	} {
		a, err := hardware.AcceleratorNamed(c.accelerator)
		if err != nil {
			t.Fatal(err)
		}
		v, err := a.VLLM(c.version)
		if err != nil || v.MaxNumSeqs != c.sequences || v.MaxNumBatchedTokens != c.tokens ||
			v.GPUMemoryUtilization != c.utilization || v.AsyncScheduling != c.async || v.FullGraphs != c.full {
			t.Errorf("%s on %s: %+v, %v", c.version, c.accelerator, v, err)
		}
	}
	for _, version := range []string{"0.7.3", "8", "latest", "0.x.1", "0..1", "0.99999.0", "-1.0.0", "0.19-rc", "v"} {
		if v, err := new(hardware.Accelerator).VLLM(version); err == nil {
			t.Errorf("%q is %+v", version, v)
		}
	}
}

func TestGraphSizes(t *testing.T) {
	for version, want := range map[string]map[int]int{
		"0.10.0": {1: 1, 2: 2, 3: 4, 5: 8, 200: 200, 201: 208, 256: 256, 257: 264, 512: 512, 513: 0},
		"0.19.0": {249: 256, 257: 272, 512: 512, 513: 0}, "0.28.0": {513: 528, 1024: 1024, 1025: 0},
	} {
		a, _ := hardware.AcceleratorNamed("B200")
		v, err := a.VLLM(version)
		if err != nil {
			t.Fatal(err)
		}
		for sequences, size := range want {
			if got := v.GraphSize(sequences); got != size {
				t.Errorf("%s: %d sequences run in a graph of %d, expected %d", version, sequences, got, size)
			}
		}
	}
}

// From 0.20 on, vLLM takes the memory of CUDA graphs from the KV cache.
func TestGraphMemory(t *testing.T) {
	plan := func(version string) hardware.MemoryPlan {
		h, err := hardware.Names{Model: "Llama-3.1-8B", Accelerator: "H100", Version: version}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		p, err := hardware.PlanMemory(hardware.MemoryConfig{Hardware: h, GPUMemoryUtilization: .9})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before, after := plan("0.19.0"), plan("0.20.0")
	if after.Graphs != 0 || before.Graphs == 0 || before.KV-after.KV != before.Graphs {
		t.Errorf("KV cache of %d bytes beside graphs of %d, then %d", before.KV, before.Graphs, after.KV)
	}
}

func TestImageVersion(t *testing.T) {
	for image, want := range map[string]string{"vllm/vllm-openai:v0.11.2": "0.11.2", "vllm-openai": "",
		"a.example/vllm/vllm-openai:v0.20.0@sha256:1": "0.20.0", "vllm/vllm-openai:v0.6.3": "",
		"vllm/vllm-openai:latest": "", "ghcr.io/llm-d/llm-d-cuda:v0.9.0": "", "": ""} {
		if got := hardware.ImageVersion(image); got != want {
			t.Errorf("%s: %q, expected %q", image, got, want)
		}
	}
}
