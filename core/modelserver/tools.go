package modelserver

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// toolCall is a tool call that the model generates instead of a text.
type toolCall struct {
	id, name string
	named    bool // tool_choice named it: the finish reason stays stop
}

// callOf decides whether a choice of a chat calls a tool. If it does, callOf sets the content to the call's arguments,
// as far as the client sees them in limit tokens. With tool_choice auto, half of the requests call a tool, drawn with
// the key of their words.
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

// arguments returns the form of a tool's arguments.
func (r *Reader) arguments(q *Request, tool int) *structured.Grammar {
	g := q.arguments[tool]
	if g == nil {
		if q.arguments == nil {
			q.arguments = map[int]*structured.Grammar{}
		}
		// never returns an error
		g, _ = r.formIn(q, argumentsForm, string(q.tools[tool].Function.Parameters), compileArguments)
		q.arguments[tool] = g
	}
	return g
}

// offer lets the answers call tools. If tool_choice requires a call, the arguments must match a schema, which the
// server refuses on the same grounds as the schema of a structured output.
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
