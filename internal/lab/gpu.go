package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// gpuFields are fields of nvidia-smi's --query-gpu, with their series in vLLM's metrics, and with how many of the
// series' unit theirs has.
var gpuFields = map[string]struct {
	series, unit string
	size         float64
}{
	"utilization.gpu": {"vllm_gpu_utilization_percent", "%", 1},
	"memory.used":     {"vllm_gpu_memory_used_bytes", "MiB", 1 << 20},
	"memory.total":    {"vllm_gpu_memory_total_bytes", "MiB", 1 << 20},
}

// readGPU returns the gpuFields of a pod's accelerator, as its metrics page has them.
func readGPU(ctx context.Context, p pod) (map[string]float64, error) {
	if p.metrics == "" {
		return nil, fmt.Errorf("pod %s has no accelerator", p.name)
	}
	page, err := fetchPage(ctx, p.metrics)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name, f := range gpuFields {
		_, v, ok := metrics.Spec{Name: f.series}.Latest(page)
		if !ok {
			return nil, fmt.Errorf("pod %s has no accelerator", p.name)
		}
		out[name] = v / f.size
	}
	return out, nil
}

// top prints what a simulated pod has instead of CPU time: its accelerator.
func (k *Kubectl) top(ctx context.Context) error {
	list, err := k.selected(k.args[min(1, len(k.args)):]...)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(k.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tGPU\tGPU MEMORY")
	for _, p := range list {
		g, err := readGPU(ctx, p)
		use, memory := "-", "-"
		if err == nil {
			use, memory = fmt.Sprintf("%.0f%%", g["utilization.gpu"]), fmt.Sprintf("%.0fMi", g["memory.used"])
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.namespace, p.name, use, memory)
	}
	return w.Flush()
}

// NvidiaSMI prints the accelerators of pods as nvidia-smi does, with the fields of --query-gpu.
func NvidiaSMI(ctx context.Context, out io.Writer, pods []pod, args []string) error {
	query := []string{"utilization.gpu", "memory.used", "memory.total"}
	head := true
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--query-gpu":
			query = strings.Split(value, ",")
		case "--format":
			head = !strings.Contains(value, "noheader")
		default:
			return fmt.Errorf("nvidia-smi: found %q, expected --query-gpu=FIELDS and --format=csv", arg)
		}
	}
	for _, q := range query {
		if _, known := gpuFields[q]; !known {
			return fmt.Errorf("nvidia-smi: --query-gpu: found %q, expected some of %s", q,
				strings.Join(slices.Sorted(maps.Keys(gpuFields)), ", "))
		}
	}
	if head {
		fmt.Fprintln(out, terminal.Join(len(query), func(i int) string {
			return fmt.Sprintf("%s [%s]", query[i], gpuFields[query[i]].unit)
		}))
	}
	for _, p := range pods {
		g, err := readGPU(ctx, p)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, terminal.Join(len(query), func(i int) string {
			return fmt.Sprintf("%.0f %s", g[query[i]], gpuFields[query[i]].unit)
		}))
	}
	return nil
}

// SMI runs nvidia-smi outside of pods, for the accelerators of all of them.
func (k *Kubectl) SMI(ctx context.Context, args []string) (err error) {
	if k.state, err = k.Dir.State(); err != nil {
		return err
	}
	var with []pod
	for _, p := range podsOf(k.state.Addresses, nil) {
		if _, err := readGPU(ctx, p); err == nil {
			with = append(with, p)
		}
	}
	return NvidiaSMI(ctx, k.Out, with, args)
}
