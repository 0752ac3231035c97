package plugins_test

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
)

// spareBlocks is a scorer: it prefers endpoints with many free KV blocks, and
// counts those beyond Enough for nothing.
type spareBlocks struct {
	picker.Base
	Enough float64 `json:"enough" above:"0"`
}

func newSpareBlocks(_ *picker.Builder, name string, params picker.Params) (picker.Plugin, error) {
	s := &spareBlocks{Enough: 1000}
	return s, params.Decode(s)
}

func (s *spareBlocks) Score(c *picker.Cycle, candidates []int32, scores []float64) {
	for i, candidate := range candidates {
		e := c.State(candidate)
		scores[i] = (1 - e.KVUsage) * float64(e.CacheBlocks) / s.Enough // above 1 is cut to 1
	}
}

// A plug-in of one's own, in a picker of the core: no socket, no clock.
func Example() {
	registry := plugins.Builtin()
	registry["spare-blocks-scorer"] = picker.Registration{New: newSpareBlocks}
	cfg, err := config.Read("example.yaml", []byte(`
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: spare-blocks-scorer, parameters: {enough: 800}}
- {type: max-score-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: spare-blocks-scorer}, {pluginRef: max-score-picker}]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := picker.New(cfg, registry, picker.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Pool().Set([]*picker.Endpoint{
		picker.NewEndpoint("default", "a", "10.0.0.1", "8000", nil),
		picker.NewEndpoint("default", "b", "10.0.0.2", "8000", nil),
	})
	p.Pool().Update(0, 0, picker.Metrics{KVUsage: 0.75, CacheBlocks: 1000})
	p.Pool().Update(0, 1, picker.Metrics{KVUsage: 0.5, CacheBlocks: 1000})
	d := p.Pick(0, &picker.Request{ID: "1", Body: &parse.Body{}}, p.Pool().View(), nil, &picker.Decision{})
	fmt.Println(d.Targets[0].Endpoint.Name, d.PrimaryProfile().Totals)
	// Output: b [0.3125 0.625]
}
