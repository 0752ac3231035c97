package hardware

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Accelerator is one GPU: its memory, its bandwidth and its arithmetic rates.
type Accelerator struct {
	Name string
	// MemoryBytes is the size that the driver reports, a little less than the advertised one.
	MemoryBytes int64
	// BandwidthBytes is the rate of reads from its own memory, per second.
	BandwidthBytes int64
	// Peak rates in TFLOP (or TOP) per second, dense; 0 if the part has none.
	BF16TFLOPS, FP8TFLOPS, INT8TFLOPS, FP4TFLOPS int64
	// Fabric connects the accelerators of one node.
	Fabric Fabric
	// ComputePercent and BandwidthPercent are the share of the peaks that real kernels reach. The roofline uses them,
	// the floor never does.
	ComputePercent, BandwidthPercent int64
}

const mib = 1 << 20

// The catalogue. Rates are the dense figures of the vendors' data sheets (NVIDIA H100, H200, A100, L40S, L4, A10, DGX
// B200, GB200, HGX B300, GB300 NVL72; AMD MI300X). Memory is the total that nvidia-smi or amd-smi reports. The shares
// that kernels reach are fitted to step-times.csv for the parts in it (H100, H200, A100, L40S), and otherwise taken
// from the nearest relative.
var accelerators = []Accelerator{
	{"A10", 23028 * mib, 600e9, 125, 0, 250, 0, PCIe4, 60, 82},
	{"A100-40GB", 40960 * mib, 1555e9, 312, 0, 624, 0, NVLink3, 76, 68},
	{"A100-80GB", 81920 * mib, 2039e9, 312, 0, 624, 0, NVLink3, 76, 68},
	{"B200", 183359 * mib, 8000e9, 2250, 4500, 4500, 9000, NVLink5, 65, 82},
	{"B300", 275040 * mib, 8000e9, 2250, 4500, 187, 13500, NVLink5, 65, 82},
	{"GB200", 189471 * mib, 8000e9, 2500, 5000, 5000, 10000, NVLink5, 65, 82},
	{"GB300", 284208 * mib, 8000e9, 2500, 5000, 167, 15000, NVLink5, 65, 82},
	{"H100", 81559 * mib, 3350e9, 989, 1979, 1979, 0, NVLink4, 69, 82},
	{"H100-PCIe", 81559 * mib, 2000e9, 756, 1513, 1513, 0, PCIe5, 69, 82},
	{"H200", 143771 * mib, 4800e9, 989, 1979, 1979, 0, NVLink4, 69, 72},
	{"L4", 23034 * mib, 300e9, 121, 242, 242, 0, PCIe4, 58, 82},
	{"L40S", 46068 * mib, 864e9, 362, 733, 733, 0, PCIe4, 58, 82},
	{"MI300X", 196288 * mib, 5300e9, 1307, 2615, 2615, 0, InfinityFabric, 50, 75},
}

var acceleratorAliases = map[string]string{
	"a100": "a100-80gb", "a100-40": "a100-40gb", "a100-80": "a100-80gb",
	"h100-80gb": "h100",
	"a10g":      "a10", "nvidia-h100-80gb-hbm3": "h100",
	"nvidia-a100-sxm4-80gb": "a100-80gb",
	"nvidia-a100-sxm4-40gb": "a100-40gb", "nvidia-l40s": "l40s", "nvidia-h200": "h200", "nvidia-l4": "l4",
	"nvidia-a10g": "a10", "nvidia-b200": "b200", "nvidia-b300": "b300",
	"nvidia-b300-sxm6-ac": "b300", "nvidia-gb200": "gb200", "nvidia-gb300": "gb300",
}

// AcceleratorNamed returns the accelerator with a name. It ignores case and underscores, and accepts the node label
// values of NVIDIA's device plug-in.
func AcceleratorNamed(name string) (Accelerator, error) {
	key := strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "-sxm")
	if alias, ok := acceleratorAliases[key]; ok {
		key = alias
	}
	for _, a := range accelerators {
		if strings.ToLower(a.Name) == key {
			return a, nil
		}
	}
	return Accelerator{}, fmt.Errorf("accelerator %q is not in the catalogue; expected one of %s", name,
		strings.Join(AcceleratorNames(), ", "))
}

// AcceleratorNames returns the names of the catalogue, in its order.
func AcceleratorNames() []string {
	names := make([]string, len(accelerators))
	for i, a := range accelerators {
		names[i] = a.Name
	}
	return names
}

// FLOPS returns the peak rate in FLOP per second for arithmetic in t. A part without that type computes in 16 bits, as
// vLLM's weight-only kernels do.
func (a *Accelerator) FLOPS(t modelshape.DType) int64 {
	rate := map[modelshape.DType]int64{modelshape.FP8: a.FP8TFLOPS, modelshape.INT8: a.INT8TFLOPS,
		modelshape.FP4: a.FP4TFLOPS}[t]
	rate = cmp.Or(rate, a.BF16TFLOPS)
	return rate * 1e12
}

// Check returns an error about an invalid accelerator in a user's file.
func (a *Accelerator) Check() error {
	switch {
	case a.MemoryBytes < 1<<30 || a.MemoryBytes > 1<<44:
		return fmt.Errorf("accelerator %q: memory is %d bytes; expected 1 GiB to 16 TiB", a.Name, a.MemoryBytes)
	case a.BandwidthBytes < 1e9 || a.BandwidthBytes > 1e15:
		return fmt.Errorf("accelerator %q: bandwidth is %d bytes/s; expected 1 GB/s to 1 PB/s", a.Name,
			a.BandwidthBytes)
	case a.BF16TFLOPS < 1 || a.BF16TFLOPS > 1e6:
		return fmt.Errorf("accelerator %q: bfloat16 rate is %d TFLOP/s; expected 1 to 1000000", a.Name, a.BF16TFLOPS)
	case a.FP8TFLOPS < 0 || a.FP8TFLOPS > 1e6 || a.INT8TFLOPS < 0 || a.INT8TFLOPS > 1e6 || a.FP4TFLOPS < 0 ||
		a.FP4TFLOPS > 1e6:
		return fmt.Errorf("accelerator %q: a rate lies outside 0 to 1000000 TFLOP/s", a.Name)
	case a.ComputePercent < 1 || a.ComputePercent > 100 || a.BandwidthPercent < 1 || a.BandwidthPercent > 100:
		return fmt.Errorf("accelerator %q: the reached parts are %d %% and %d %%; expected 1 to 100", a.Name,
			a.ComputePercent, a.BandwidthPercent)
	}
	return a.Fabric.Check()
}
