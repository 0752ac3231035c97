package extend

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/preview"
)

// gpuMemory computes the same as document 002's example.
type gpuMemory struct{ weight float64 }

func (s *gpuMemory) Name() string { return "gpu-memory-scorer" }

func (s *gpuMemory) Score(_ context.Context, _ *Request, pod *Pod) float64 {
	used, total := pod.Metrics.GPUMemoryUsedBytes, pod.Metrics.GPUMemoryTotalBytes
	return float64(total-used) / float64(total) * s.weight
}

// byName has document 003's form: all pods at once, scores by name.
type byName map[string]float64

func (s byName) Score(_ context.Context, pods []Pod, r Request) (map[string]float64, error) {
	if r.Headers["x-fail"] != "" {
		return nil, errors.New("asked to fail")
	}
	if r.Headers["x-panic"] != "" {
		panic("asked to panic")
	}
	out := map[string]float64{}
	for _, p := range pods {
		if v, ok := s[p.Name]; ok {
			out[p.Name] = v
		}
	}
	return out, nil
}

func init() {
	Scorer("gpu-memory-scorer", func(p picker.Params) (ScorerPlugin, error) {
		args := struct {
			Weight float64 `json:"weight"`
		}{1}
		err := p.Decode(&args)
		return &gpuMemory{args.Weight}, err
	})
	PodsScorer("by-name-scorer", func(p picker.Params) (CustomScorer, error) {
		s := map[string]float64{}
		err := p.Decode(&s)
		return byName(s), err
	})
}

const text = `
plugins:
- type: gpu-memory-scorer
- {type: by-name-scorer, parameters: {a: 1.75, b: 7}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: gpu-memory-scorer, weight: 2}, {pluginRef: by-name-scorer, weight: 1}]}
`

const state = `
endpoints:
- {name: a, custom: {gpu_memory_used_bytes: 20, gpu_memory_total_bytes: 80}}
- {name: b, custom: {vllm_gpu_memory_used_bytes: 60, vllm_gpu_memory_total_bytes: 80}}
- {name: c}
`

func totals(t *testing.T, headers map[string]string) (map[string]float64, *picker.Decision) {
	t.Helper()
	cfg, err := config.Read("epp.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := preview.ReadState("state.yaml", []byte(state))
	if err != nil {
		t.Fatal(err)
	}
	p, err := preview.Build(cfg, plugins.Builtin(), picker.Options{}, s)
	if err != nil {
		t.Fatal(err)
	}
	d, err := preview.Pick(p, 0,
		&preview.Request{Body: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, Headers: headers}, "r")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	if r := d.PrimaryProfile(); r != nil {
		for j, i := range r.Left {
			got[d.View.States[i].Name] = r.Totals[j]
		}
	}
	return got, d
}

// Pod a has 3/4 of its memory free, and b 1/4. The scorer of names returns values above 1: 7 counts as 1, and 1.75 as
// a quarter of that. Pod c reports no memory (0/0 is no score), and has no name in the map.
func TestBothForms(t *testing.T) {
	got, _ := totals(t, nil)
	if diff := cmp.Diff(map[string]float64{"a": 1.75, "b": 1.5, "c": 0}, got); diff != "" {
		t.Error(diff)
	}
	got, _ = totals(t, map[string]string{"x-fail": "yes"})
	if diff := cmp.Diff(map[string]float64{"a": 1.5, "b": .5, "c": 0}, got); diff != "" {
		t.Error("a scorer that fails leaves the choice to the others:", diff)
	}
}

func TestPanicIsNamed(t *testing.T) {
	_, d := totals(t, map[string]string{"x-panic": "yes"})
	want := "plugin by-name-scorer (by-name-scorer) panicked: asked to panic"
	if d.Err == nil || d.Err.Message != want {
		t.Errorf("got %v, want %s", d.Err, want)
	}
}

func TestTypesAreRegisteredOnce(t *testing.T) {
	defer func() {
		if v := fmt.Sprint(recover()); v == "<nil>" {
			t.Error("a second type of the same name was taken")
		}
	}()
	Scorer("queue-scorer", func(picker.Params) (ScorerPlugin, error) { return &gpuMemory{1}, nil })
}
