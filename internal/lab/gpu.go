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
)

// gpu has the values of nvidia-smi for a pod: percent of the time, and MiB.
type gpu struct{ percent, used, total float64 }

func readGPU(ctx context.Context, p pod) (g gpu, err error) {
	if p.metrics == "" {
		return g, fmt.Errorf("pod %s has no accelerator", p.name)
	}
	page, err := fetchPage(ctx, p.metrics)
	if err != nil {
		return g, err
	}
	for name, to := range map[string]*float64{"vllm_gpu_utilization_percent": &g.percent,
		"vllm_gpu_memory_used_bytes": &g.used, "vllm_gpu_memory_total_bytes": &g.total} {
		_, v, ok := metrics.Spec{Name: name}.Latest(page)
		if !ok {
			return g, fmt.Errorf("pod %s has no accelerator", p.name)
		}
		*to = v
	}
	g.used, g.total = g.used/(1<<20), g.total/(1<<20)
	return g, nil
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
			use, memory = fmt.Sprintf("%.0f%%", g.percent), fmt.Sprintf("%.0fMi", g.used)
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
	fields := map[string]func(g gpu) string{
		"utilization.gpu": func(g gpu) string { return fmt.Sprintf("%.0f %%", g.percent) },
		"memory.used":     func(g gpu) string { return fmt.Sprintf("%.0f MiB", g.used) },
		"memory.total":    func(g gpu) string { return fmt.Sprintf("%.0f MiB", g.total) },
	}
	units := map[string]string{"utilization.gpu": "[%]", "memory.used": "[MiB]", "memory.total": "[MiB]"}
	var heads []string
	for _, q := range query {
		if fields[q] == nil {
			return fmt.Errorf("nvidia-smi: --query-gpu: found %q, expected some of %s", q,
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		heads = append(heads, q+" "+units[q])
	}
	if head {
		fmt.Fprintln(out, strings.Join(heads, ", "))
	}
	for _, p := range pods {
		g, err := readGPU(ctx, p)
		if err != nil {
			return err
		}
		var row []string
		for _, q := range query {
			row = append(row, fields[q](g))
		}
		fmt.Fprintln(out, strings.Join(row, ", "))
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
