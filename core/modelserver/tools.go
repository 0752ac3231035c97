package modelserver

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/tokens"
)

// toolCall is a call that the model makes instead of saying something.
type toolCall struct {
	id, name string
	pieces   []piece // the arguments' JSON, token by token
	named    bool    // tool_choice named it: the finish reason stays stop
}

// callOf decides whether a choice of a chat calls a tool, and writes the call, as
// far as limit tokens of it will be told. With tool_choice auto every second
// request does, drawn by its id.
func (r *Reader) callOf(q *Request, i, limit int) *toolCall {
	if len(q.tools) == 0 {
		return nil
	}
	d := machine.DrawFor(r.Seed^q.Seed, "server", "tool", keyOf(q.Key, i))
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
	tool := &q.tools[at]
	g := schemaWriter{draw: d, voc: r.Vocabulary, o: r.Tools.withDefaults(), work: &q.work, most: toolPiece * (limit + 1)}
	g.object(q.schema(at), 0)
	q.work.spend(pieceWork * len(g.b))
	call := &toolCall{id: "chatcmpl-tool-" + d.Letters(32), name: tool.Function.Name, named: q.toolChoice.Mode == "function"}
	for text := string(g.b); text != ""; {
		n := min(toolPiece, len(text))
		call.pieces = append(call.pieces, piece{uint32(len(call.pieces) + 1), text[:n]})
		text = text[n:]
	}
	return call
}

// toolPiece is how many bytes of a call's arguments are one token.
const toolPiece = 4

// schema is what a tool's arguments must be like; nil where it has none.
func (r *Request) schema(tool int) any {
	schema, known := r.schemas[tool]
	if raw := r.tools[tool].Function.Parameters; !known && r.work.spend(schemaWork*len(raw)) {
		_ = json.Unmarshal(raw, &schema) // no schema, no arguments
		if r.schemas == nil {
			r.schemas = map[int]any{}
		}
		r.schemas[tool] = schema
	}
	return schema
}

// schemaWriter makes up a value that fits a JSON schema.
type schemaWriter struct {
	b    []byte
	draw machine.Draw
	voc  *tokens.Vocabulary
	o    ToolOptions
	work *work
	most int // bytes that anybody will see
}

// step counts a value, and the bytes of a schema that making it looks at. It is
// false when nothing more need be written, or may be.
func (g *schemaWriter) step(looks int) bool { return g.work.spend(1+looks) && len(g.b) < g.most }

// ToolOptions bound what the model makes up where a tool's schema does not, with
// llm-d-inference-sim's meanings.
type ToolOptions struct {
	MinInteger, MaxInteger int     // 0 to 100 where both are 0
	MinNumber, MaxNumber   float64 // 0 to 100 where both are 0
	MinItems, MaxItems     int     // of an array, 1 where both are 0
	// OmitOptional is in how many per cent of the calls a parameter that is not
	// required is left out, OmitField the same for fields of objects within. Nil
	// is 50.
	OmitOptional, OmitField *int
}

func (o ToolOptions) withDefaults() ToolOptions {
	if o.MinInteger == 0 && o.MaxInteger == 0 {
		o.MaxInteger = 100
	}
	if o.MinNumber == 0 && o.MaxNumber == 0 {
		o.MaxNumber = 100
	}
	o.MinItems = max(o.MinItems, 1)
	o.MaxItems = max(o.MaxItems, o.MinItems)
	half := 50
	if o.OmitOptional == nil {
		o.OmitOptional = &half
	}
	if o.OmitField == nil {
		o.OmitField = &half
	}
	return o
}

const maxSchemaDepth = 16

func (g *schemaWriter) object(schema any, depth int) {
	g.b = append(g.b, '{')
	m, _ := schema.(map[string]any)
	props, _ := m["properties"].(map[string]any)
	list, _ := m["required"].([]any)
	if !g.step(schemaWork * (len(props) + len(list))) {
		return
	}
	required := map[string]bool{}
	for _, x := range list {
		if name, ok := x.(string); ok {
			required[name] = true
		}
	}
	names := make([]string, 0, len(props))
	for name := range props {
		names = append(names, name)
	}
	slices.Sort(names)
	first := true
	for _, name := range names {
		omit := *g.o.OmitField
		if depth == 0 {
			omit = *g.o.OmitOptional
		}
		if !g.step(0) {
			return
		}
		if !required[name] && g.draw.Intn(100) < omit {
			continue
		}
		if !first {
			g.b = append(g.b, ", "...)
		}
		first = false
		g.b = openai.AppendString(g.b, name)
		g.b = append(g.b, ": "...)
		g.value(props[name], depth+1)
	}
	g.b = append(g.b, '}')
}

func (g *schemaWriter) value(schema any, depth int) {
	if !g.step(0) {
		return
	}
	m, _ := schema.(map[string]any)
	if list, ok := m["enum"].([]any); ok && len(list) > 0 {
		if raw, err := json.Marshal(list[g.draw.Intn(len(list))]); err == nil {
			g.b = append(g.b, raw...)
			g.step(len(raw))
			return
		}
	}
	if c, ok := m["const"]; ok {
		if raw, err := json.Marshal(c); err == nil {
			g.b = append(g.b, raw...)
			g.step(len(raw))
			return
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := m[key].([]any); ok && len(list) > 0 && depth < maxSchemaDepth {
			g.value(list[0], depth+1)
			return
		}
	}
	kind, _ := m["type"].(string)
	if list, ok := m["type"].([]any); ok && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	least, most := float64(g.o.MinInteger), float64(g.o.MaxInteger)
	if kind == "number" {
		least, most = g.o.MinNumber, g.o.MaxNumber
	}
	low := bound(m, "minimum", least)
	high := bound(m, "maximum", max(most, low))
	low = min(low, bound(m, "minimum", min(least, high)))
	switch kind {
	case "integer":
		g.b = strconv.AppendInt(g.b, int64(low)+int64(g.draw.Intn(int(max(0, high-low))+1)), 10)
	case "number":
		g.b = strconv.AppendFloat(g.b, low+float64(g.draw.Intn(1000))/1000*max(0, high-low), 'f', 3, 64)
	case "boolean":
		g.b = strconv.AppendBool(g.b, g.draw.Intn(2) == 0)
	case "null":
		g.b = append(g.b, "null"...)
	case "array":
		g.b = append(g.b, '[')
		n := g.o.MinItems
		if more := g.o.MaxItems - g.o.MinItems; more > 0 {
			n += g.draw.Intn(more + 1)
		}
		n = max(int(bound(m, "minItems", float64(n))), min(n, int(bound(m, "maxItems", float64(n)))))
		for i := range min(n, 32) {
			if !g.step(0) {
				return
			}
			if i > 0 {
				g.b = append(g.b, ", "...)
			}
			if depth < maxSchemaDepth {
				g.value(m["items"], depth+1)
			} else {
				g.b = append(g.b, "null"...)
			}
		}
		g.b = append(g.b, ']')
	case "object":
		if depth < maxSchemaDepth {
			g.object(schema, depth)
		} else {
			g.b = append(g.b, "{}"...)
		}
	default:
		_, word := g.voc.Word(g.draw.Intn(g.voc.Len()))
		g.b = openai.AppendString(g.b, word[1:])
	}
}

func bound(m map[string]any, key string, otherwise float64) float64 {
	if v, ok := m[key].(float64); ok && v > -1e9 && v < 1e9 {
		return v
	}
	return otherwise
}
