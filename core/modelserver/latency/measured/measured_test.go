package measured

import (
	"reflect"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

const fixture = `left_out,model,precision,accelerator,gpus,batch,rows,ttft,tpot
,meta-llama/Llama-3.1-70B,fp8,H200,4,16,30,0.140,0.060
,meta-llama/Llama-3.1-70B,fp8,H200,4,32,10,0.180,0.100
,meta-llama/Llama-3.1-70B,fp8,H200,4,256,8,0.500,0.500
,meta-llama/Llama-3.1-70B,fp8,H200,8,4,2,0.300,0.300
,openai/gpt-oss-120b,fp4,H100,2,16,12,0.200,0.150
model,meta-llama/Llama-3.1-70B,fp8,H200,4,16,50,0.310,0.200
accelerator,meta-llama/Llama-3.1-70B,fp8,H200,4,16,50,0.200,0.250
model,openai/gpt-oss-120b,fp4,H100,2,16,12,0.400,0.350
`

func TestExpect(t *testing.T) {
	list, err := Parse("errors.csv", fixture)
	if err != nil || len(list) != 8 || Format(list) != fixture {
		t.Fatal(list, err)
	}
	for _, c := range []struct {
		names hardware.Names
		batch int64
		want  string
	}{
		{hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H200", TP: 4, Quantization: "fp8"}, 20,
			"TPOT ±7 % on 40 measured configurations; TTFT ±15 %"},
		// Without a load near it, all of these GPUs count; without these GPUs, all of the model on the accelerator.
		{hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H200", TP: 4, Quantization: "fp8"}, 1,
			"TPOT ±14 % on 48 measured configurations; TTFT ±21 %"},
		{hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H200", TP: 2, Quantization: "fp8"}, 16,
			"TPOT ±15 % on 50 measured configurations; TTFT ±21 %"},
		// Another precision, accelerator or model has no measurement.
		{hardware.Names{Model: "Llama-3.1-70B", Accelerator: "H200", TP: 4}, 16,
			"no measurement within reach: from Llama-3.1-70B on H200 and physics alone, TPOT ±25 %; TTFT ±20 %"},
		{hardware.Names{Model: "Llama-3.1-70B", Accelerator: "A100-80GB", TP: 4, Quantization: "fp8"}, 16,
			"no measurement within reach: from Llama-3.1-70B on H200 and physics alone, TPOT ±25 %; TTFT ±20 %"},
		{hardware.Names{Model: "Qwen/Qwen3-32B", Accelerator: "H200", TP: 4}, 16,
			"no measurement within reach: from Llama-3.1-70B on H200 and physics alone, TPOT ±20 %; TTFT ±31 %"},
		{hardware.Names{Model: "Qwen/Qwen3-32B", Accelerator: "L4", TP: 4}, 16,
			"no measurement within reach: from Llama-3.1-70B on H200 and physics alone, TPOT ±25 %; TTFT ±31 %"},
		{hardware.Names{Model: "mistralai/Mixtral-8x7B-v0.1", Accelerator: "H100", TP: 2}, 16,
			"no measurement within reach: from gpt-oss-120b on H100 and physics alone, TPOT ±35 %; TTFT ±40 %"},
	} {
		h, err := c.names.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := Expect(list, h, c.batch); !ok || e.String() != c.want {
			t.Errorf("%+v at %d: %v %v; expected %s", c.names, c.batch, e, ok, c.want)
		}
		if e, ok := Expect(nil, h, c.batch); ok {
			t.Errorf("without measurements: %v", e)
		}
	}
}

// The embedded table is readable, and a wrong one is refused with its line.
func TestParse(t *testing.T) {
	if again, err := Parse("", Format(builtin())); err != nil || !reflect.DeepEqual(again, builtin()) {
		t.Error(err)
	}
	head := strings.Join(header, ",") + "\n"
	for text, want := range map[string]string{
		"":                              "",
		"model\n":                       "f:1: wrong number of fields",
		strings.Repeat("x,", 8) + "x\n": "f:1: the header is",
		head + "rows,meta-llama/Llama-3.1-8B,fp8,H100,1,1,1,0,0\n":      `f:2: left_out: found "rows"`,
		head + ",Llama-9,fp8,H100,1,1,1,0,0\n":                          `f:2: model "Llama-9"`,
		head + ",meta-llama/Llama-3.1-8B,fp8,TPU,1,1,1,0,0\n":           `f:2: accelerator "TPU"`,
		head + ",meta-llama/Llama-3.1-8B,fp8,H100,0,1,1,0,0\n":          `f:2: gpus: found "0"`,
		head + ",meta-llama/Llama-3.1-8B,fp8,H100,1,1,1,NaN,0\n":        `f:2: ttft: found "NaN"`,
		head + ",meta-llama/Llama-3.1-8B,fp8,H100,1,1,1,0,-1\n":         `f:2: tpot: found "-1"`,
		head + "# c\n,meta-llama/Llama-3.1-8B,fp8,H100,1,1,1,0.1,0.1\n": "",
		strings.Repeat("#", maxBytes+1):                                 "f: 1048577 bytes",
	} {
		_, err := Parse("f", text)
		if got := ""; err != nil {
			if got = err.Error(); want == "" || !strings.Contains(got, want) {
				t.Errorf("%.100q: %s; expected %s", text, got, want)
			}
		} else if want != "" {
			t.Errorf("%.100q: no error; expected %s", text, want)
		}
	}
}
