package latency

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// testdata/script holds document 003's examples with our figures and reasons.
// With kind=vllm, the step times are those of guessed parameters, which no fit to further measurements changes.
// Commands: hardware (names of what the following ask about), step, breakdown,
// memory, kv, table (points to check), csv.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var h *hardware.Hardware
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			out, err := runScript(td, &h)
			if err != nil {
				return out + "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

func runScript(td *datadriven.TestData, hw **hardware.Hardware) (string, error) {
	args := map[string]string{}
	for _, a := range td.CmdArgs {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	number := func(key string) int { n, _ := strconv.Atoi(args[key]); return n }
	h := *hw
	switch td.Cmd {
	case "hardware":
		n := hardware.Names{Model: args["model"], Accelerator: args["on"], TP: number("tp"), DP: number("dp"),
			EP: args["ep"] == "1", Nodes: number("nodes"),
			Between: args["between"], Version: args["version"],
			Quantization: args["quantization"], KVCacheDType: args["kv"], NCCLIBDisable: args["NCCL_IB_DISABLE"] == "1"}
		var err error
		if *hw, err = n.Resolve(); err != nil {
			return "", err
		}
		h = *hw
		return fmt.Sprintf("%s: %.1f B parameters, %.1f GiB of weights on each of %d ranks of %s\n", h.Model.Name,
			float64(h.Model.Params())/1e9,
			float64(h.WeightBytes())/(1<<30), h.Group.Ranks(), h.Accelerator.Name), nil
	case "kv":
		n := int64(number("tokens"))
		return fmt.Sprintf("%d bytes per token, %.0f MiB for %d tokens\n", h.Model.KVBytesPerToken(h.KV),
			float64(n*h.Model.KVBytesPerToken(h.KV))/(1<<20), n), nil
	case "memory":
		util, _ := strconv.ParseFloat(args["util"], 64)
		p, err := hardware.PlanMemory(
			hardware.MemoryConfig{Hardware: h, GPUMemoryUtilization: util, MaxNumSeqs: number("seqs"),
				MaxNumBatchedTokens: number("tokens"),
				MaxModelLen:         number("len"), SwapSpaceBytes: int64(number("swapGiB")) << 30,
				HostLimitBytes: int64(number("limitGiB")) << 30, KVBytes: int64(number("kvGiB")) << 30})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("weights %s, activations %s, runtime %s, KV %s: %d GPU blocks (%d tokens), %d CPU blocks\n",
			gigabytes(p.Weights), gigabytes(p.Activations), gigabytes(p.Runtime), gigabytes(p.KV),
			p.NumGPUBlocks, p.NumGPUBlocks*16, p.NumCPUBlocks), nil
	case "table":
		all, err := ParseCSV("points.csv", strings.Join(csvHeader, ",")+"\n"+td.Input+"\n")
		if err == nil {
			_, err = NewTable(all[0].Points, h)
		}
		return "", err
	case "step", "breakdown":
		timer, err := New(Config{Kind: Kind(args["kind"]), Hardware: h,
			Calibration: &CalibrationFile{Parameters: PriorCalibration()}})
		if err != nil {
			return "", err
		}
		out := ""
		if td.Cmd == "step" {
			out = "(" + timer.Source() + ")\n"
			if timer.Doubt() != "" {
				out += "take care: " + timer.Doubt() + "\n"
			}
		}
		for _, line := range strings.Split(td.Input, "\n") {
			s, err := parseStep(line)
			if err != nil {
				return out, err
			}
			if td.Cmd == "step" {
				ns := int64(timer.StepTime(s).Time())
				compute, bandwidth := h.Usage(s, ns)
				out += fmt.Sprintf("%s: %s (MFU %d %%, MBU %d %%)\n", line, hardware.Round(ns), compute/10,
					bandwidth/10)
				continue
			}
			b := timer.Split(s, timer.StepTime(s).Time())
			out += fmt.Sprintf("%s: %s = broadcast %s + compute %s + %d all-reduces of %s + gather %s\n", line,
				b.Total.Duration(), b.Broadcast.Duration(), b.Compute.Duration(), b.AllReduces, b.AllReduce.Duration(),
				b.Gather.Duration())
		}
		return out, nil
	case "constant":
		ttft, _ := dist.Parse(args["ttft"])
		itl, _ := dist.Parse(args["itl"])
		timer := Constant{machine.Time(ttft.Quantile(.5)), machine.Time(itl.Quantile(.5))}
		total := timer.StepTime(hardware.PrefillStep(2000)).Time() +
			machine.Time(number("tokens"))*timer.StepTime(hardware.DecodeStep(1, 2000)).Time()
		return fmt.Sprintf("%s prefill + %d tokens × %s = %s\n", timer.TimeToFirstToken.Duration(), number("tokens"),
			timer.InterTokenLatency.Duration(), total.Duration()), nil
	}
	return "", fmt.Errorf("unknown command %s", td.Cmd)
}

// parseStep reads "prefill 2048", "chunk 512 after 1024", "decode 8 x 1024" or
// several of these joined by "+".
func parseStep(line string) (*engine.Step, error) {
	s := &engine.Step{}
	for _, part := range strings.Split(line, "+") {
		var a, b int64
		switch {
		case scan(part, "prefill %d", &a):
			s.PrefillSeqs++
			s.PrefillFinished++
			s.PrefillTokens += a
			s.PrefillPairs += a * (a + 1) / 2
		case scan(part, "chunk %d after %d", &a, &b):
			s.PrefillSeqs++
			s.PrefillTokens += a
			s.PrefillContext += b
			s.PrefillPairs += a*b + a*(a+1)/2
		case scan(part, "decode %d x %d", &a, &b):
			s.DecodeSeqs += int(a)
			s.DecodeContext += a * b
		default:
			return nil, fmt.Errorf("%q: expected prefill N, chunk N after N or decode N x N", part)
		}
	}
	return s, nil
}

func scan(text, format string, to ...any) bool {
	n, err := fmt.Sscanf(strings.TrimSpace(text), format, to...)
	return err == nil && n == len(to)
}

func gigabytes(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
