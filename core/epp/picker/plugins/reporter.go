package plugins

import (
	"math"

	"cel.dev/cel-go/cel"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// reporter is request-attribute-reporter: a value computed from the token
// usage by a CEL expression, as dynamic metadata of the last response message.
type reporter struct {
	named
	Attributes []struct {
		Key struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"key"`
		Expression string `json:"expression"`
		Condition  string `json:"condition"`
	} `json:"attributes"`

	value, condition cel.Program
}

// Configure implements picker.Configurer.
func (r *reporter) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	if len(r.Attributes) != 1 {
		return p.At("attributes").Expected("exactly one entry")
	}
	a := &r.Attributes[0]
	switch {
	case a.Key.Name == "":
		return p.At("attributes[0].key.name").Expected("the attribute's name")
	case a.Expression == "":
		return p.At("attributes[0].expression").Expected("an expression")
	case a.Key.Namespace == "":
		a.Key.Namespace = picker.NamespaceLB
	}
	env, err := cel.NewEnv(cel.Variable("usage", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		return err
	}
	compile := func(text string) (cel.Program, error) {
		ast, issues := env.Compile(text)
		if issues != nil && issues.Err() != nil {
			return nil, p.Errorf("failed to compile %q: %v", text, issues.Err())
		}
		return env.Program(ast, cel.CostLimit(100_000))
	}
	if r.value, err = compile(a.Expression); err != nil {
		return err
	}
	if a.Condition != "" {
		if r.condition, err = compile(a.Condition); err != nil {
			return err
		}
	}
	return nil
}

// ReadsProgress implements picker.ProgressReader.
func (*reporter) ReadsProgress() bool { return true }

// ReadsUsage implements picker.UsageReader.
func (*reporter) ReadsUsage() {}

// ResponseBody reports at the end of a response. A response without usage used nothing.
func (r *reporter) ResponseBody(_ machine.Time, resp *picker.Response) {
	if !resp.End {
		return
	}
	u := resp.Usage
	usage := map[string]any{
		"prompt_tokens": float64(u.PromptTokens), "completion_tokens": float64(u.CompletionTokens),
		"total_tokens": float64(u.TotalTokens),
	}
	if u.HasCached {
		usage["prompt_tokens_details"] = map[string]any{"cached_tokens": float64(u.CachedTokens)}
	}
	vars := map[string]any{"usage": usage}
	if r.condition != nil {
		v, _, err := r.condition.Eval(vars)
		if err != nil || v.Value() != true {
			return
		}
	}
	v, _, err := r.value.Eval(vars)
	if err != nil {
		return
	}
	var n int64
	switch x := v.Value().(type) {
	case float64:
		if !(x > math.MinInt64 && x < math.MaxInt64) {
			return
		}
		n = int64(x)
	case int64:
		n = x
	}
	if n == 0 || n == -1 {
		return
	}
	k := r.Attributes[0].Key
	resp.SetMetadata(k.Namespace, k.Name, float64(n))
}
