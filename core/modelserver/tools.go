package modelserver

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// toolCall is a call that the model makes instead of saying something.
type toolCall struct {
	id, name string
	named    bool // tool_choice named it: the finish reason stays stop
}

// callOf decides whether a choice of a chat calls a tool, and has c say the call's
// arguments, as far as limit tokens of them will be told. With tool_choice auto
// every second request does, drawn as its words are.
func (r *Reader) callOf(c *content, q *Request, i, limit int) *toolCall {
	if len(q.tools) == 0 {
		return nil
	}
	d := machine.DrawFor(r.Seed, "server", "tool", q.wordsOf(i))
	at := 0
	switch q.toolChoice.Mode {
	case "none":
		return nil
	case "function":
		at = slices.IndexFunc(q.tools, func(t openai.Tool) bool { return t.Function.Name == q.toolChoice.Name })
		if at < 0 {
			return nil
		}
	case "required":
		at = d.Intn(len(q.tools))
	default:
		if d.Intn(2) == 0 {
			return nil
		}
		at = d.Intn(len(q.tools))
	}
	r.write(c, q, r.arguments(q, at), &structured.Text{Draw: d, Options: r.Tools}, limit)
	id := machine.DrawFor(r.Seed, "server", "tool id", keyOf(q.Key, i))
	return &toolCall{id: "chatcmpl-tool-" + id.Letters(32), name: q.tools[at].Function.Name,
		named: q.toolChoice.Mode == "function"}
}

// arguments is the form of a tool's arguments.
func (r *Reader) arguments(q *Request, tool int) *structured.Grammar {
	g := q.arguments[tool]
	if g == nil {
		if q.arguments == nil {
			q.arguments = map[int]*structured.Grammar{}
		}
		// is never refused
		g, _ = r.formIn(q, argumentsForm, string(q.tools[tool].Function.Parameters), compileArguments)
		q.arguments[tool] = g
	}
	return g
}

// offer has the answers call tools. Where they must, the arguments have to keep to
// a schema, which is refused as one of a structured output is.
func (r *Reader) offer(q *Request, tools []openai.Tool, choice openai.ToolChoice) *openai.Error {
	q.tools, q.toolChoice = tools, choice
	if choice.Mode != "required" && choice.Mode != "function" {
		return nil
	}
	for i := range tools {
		f := &tools[i].Function
		if choice.Mode == "function" && f.Name != choice.Name || !given(f.Parameters) {
			continue
		}
		if _, err := r.formIn(q, schemaForm, string(f.Parameters), compileSchema); err != nil {
			return openai.Errorf(400, "tools", "Grammar error: tools[%d].function.parameters: %v", i, err)
		}
	}
	return nil
}
