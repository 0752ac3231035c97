package chattemplate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Conversation is the input of a chat template.
type Conversation struct {
	Messages []Message
	// Tools are the tool definitions, as JSON.
	Tools []json.RawMessage
	// NoGenerationPrompt leaves out the beginning of the model's answer.
	NoGenerationPrompt bool
	// Continue ends the prompt within the last message, so that the model continues that message.
	Continue bool
	// Variables are the client's variables for the template: vLLM's chat_template_kwargs, a JSON object.
	Variables json.RawMessage
}

// Message is one turn of the conversation.
type Message struct {
	Role, Content, Name, ToolCallID string
	// Parts are the parts of the content, where it has several. Templates that loop over a content get them.
	Parts []string
	Calls []Call
}

// content returns a message's content in the form that a template expects: a text, or a list of parts. The content of a
// tool's answer is always a text (vllm/renderers/chat_utils/chat_message.py).
func (m *Message) content(o orders, parts bool) any {
	if !parts || m.Role == "tool" {
		return m.Content
	}
	texts := m.Parts
	if len(texts) == 0 && (m.Content != "" || len(m.Calls) == 0) {
		texts = []string{m.Content}
	}
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = o.dict("type", "text", "text", text)
	}
	return out
}

// Call is a tool call that the model made. Arguments is the JSON text that the model wrote.
type Call struct{ ID, Name, Arguments string }

// values puts the variables of the template into data.
func (c *Conversation) values(data map[string]any, parts bool) error {
	o := orders{}
	data[ordersName] = o
	messages := make([]any, len(c.Messages))
	for i, m := range c.Messages {
		v := o.dict("role", m.Role, "content", m.content(o, parts))
		if m.Name != "" {
			o.add(v, "name", m.Name)
		}
		if m.ToolCallID != "" {
			o.add(v, "tool_call_id", m.ToolCallID)
		}
		if len(m.Calls) > 0 {
			calls := make([]any, len(m.Calls))
			for k, call := range m.Calls {
				arguments, err := o.decode([]byte(call.Arguments))
				if err != nil { // the text as the model wrote it
					arguments = call.Arguments
				}
				calls[k] = o.dict("id", call.ID, "type", "function", "function",
					o.dict("name", call.Name, "arguments", arguments))
			}
			o.add(v, "tool_calls", calls)
		}
		messages[i] = v
	}
	data["messages"], data["add_generation_prompt"], data["tools"], data["documents"] = messages, !c.NoGenerationPrompt,
		nil, nil
	if len(c.Tools) > 0 {
		tools := make([]any, len(c.Tools))
		for i, raw := range c.Tools {
			tool, err := o.decode(raw)
			if err != nil {
				return fmt.Errorf("tools[%d]: %w", i, err)
			}
			tools[i] = tool
		}
		data["tools"] = tools
	}
	if len(c.Variables) > 0 {
		v, err := o.decode(c.Variables)
		given, ok := v.(map[string]any)
		if err != nil || !ok && v != nil {
			return errors.New("chat_template_kwargs: expected an object")
		}
		for name, value := range given {
			if name == "messages" || name == budgetName || name == ordersName {
				continue
			}
			data[name] = value
		}
	}
	return nil
}

// orders holds the keys of objects in the order in which they were written. Python keeps that order, and prompts depend
// on it.
type orders map[uintptr][]string

const ordersName = " orders"

// dict returns an object made of names and values.
func (o orders) dict(pairs ...any) map[string]any {
	v := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		o.add(v, pairs[i].(string), pairs[i+1])
	}
	return v
}

func (o orders) add(v map[string]any, name string, value any) {
	if _, known := v[name]; !known {
		at := reflect.ValueOf(v).Pointer()
		o[at] = append(o[at], name)
	}
	v[name] = value
}

func (o orders) decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := o.value(d, 0)
	if err == nil && d.More() {
		err = errors.New("something follows the JSON value")
	}
	return v, err
}

// maxDepth limits the nesting of values.
const maxDepth = 256

func (o orders) value(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		v := o.dict()
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := o.value(d, depth+1)
			if err != nil {
				return nil, err
			}
			o.add(v, name.(string), value)
		}
		_, err = d.Token()
		return v, err
	case json.Delim('['):
		v := []any{}
		for d.More() {
			value, err := o.value(d, depth+1)
			if err != nil {
				return nil, err
			}
			v = append(v, value)
		}
		_, err = d.Token()
		return v, err
	}
	if n, ok := t.(json.Number); ok {
		if i, err := n.Int64(); err == nil {
			return int(i), nil
		}
		f, err := n.Float64()
		return f, err
	}
	return t, nil
}

// names returns an object's keys in their order. It sorts the keys of an object that the template made.
func (o orders) names(v map[string]any) []string {
	names := slices.Clone(o[reflect.ValueOf(v).Pointer()])
	names = slices.DeleteFunc(names, func(n string) bool { _, there := v[n]; return !there })
	if len(names) != len(v) {
		names = slices.Sorted(maps.Keys(v))
	}
	return names
}

func pairOf(name string, value any) any { return []any{name, value} }
func keyOf(name string, _ any) any      { return name }
func valueOf(_ string, value any) any   { return value }

// ofDict returns a filter that lists the members of an object, in the order of its keys.
func ofDict(each func(name string, value any) any) exec.FilterFunction {
	return func(e *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		if in.IsError() {
			return in
		}
		v, ok := in.Interface().(map[string]any)
		if !ok && !in.IsDict() {
			return exec.AsValue(fmt.Errorf("items, keys and values are of objects, found %.100s", in.String()))
		}
		known, _ := e.Environment.Context.Get(ordersName)
		o, _ := known.(orders)
		out := make([]any, 0, len(v))
		for _, name := range o.names(v) {
			out = append(out, each(name, v[name]))
		}
		if !ok { // an object that the template made
			for _, name := range in.Keys() {
				value, _ := in.GetItem(name.Interface())
				out = append(out, each(name.String(), value))
			}
		}
		if err := budgetOf(e.Environment.Context).take(len(out)); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(out)
	}
}

// toJSON is the filter tojson as in transformers: Python's json.dumps without ASCII escapes.
func toJSON(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	v, _ := e.Environment.Context.Get(ordersName)
	known, _ := v.(orders)
	w := jsonWriter{orders: known, budget: budgetOf(e.Environment.Context), item: ", ", colon: ": "}
	if indent, ok := args.KwArgs["indent"]; ok && indent.IsInteger() {
		w.indent, w.item = strings.Repeat(" ", max(0, min(indent.Integer(), 16))), ","
	} else if len(args.Args) > 0 && args.Args[0].IsInteger() {
		w.indent, w.item = strings.Repeat(" ", max(0, min(args.Args[0].Integer(), 16))), ","
	}
	if err := w.write(in.Interface(), 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(w.b.String())
}

type jsonWriter struct {
	orders      orders
	budget      *budget
	b           bytes.Buffer
	item, colon string
	indent      string
}

func (w *jsonWriter) line(depth int) {
	if w.indent != "" {
		w.b.WriteByte('\n')
		w.b.WriteString(strings.Repeat(w.indent, depth))
	}
}

// list writes n elements between brackets.
func (w *jsonWriter) list(brackets string, n, depth int, each func(i int) error) error {
	w.b.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		w.line(depth + 1)
		if err := each(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.line(depth)
	}
	w.b.WriteByte(brackets[1])
	return nil
}

func (w *jsonWriter) write(v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("tojson of a value that is nested more than %d deep", maxDepth)
	}
	if err := w.budget.take(1); err != nil {
		return err
	}
	if value, ok := v.(*exec.Value); ok {
		v = value.Interface()
	}
	switch x := v.(type) {
	case map[string]any:
		names := w.orders.names(x)
		return w.list("{}", len(names), depth, func(i int) error {
			if err := w.write(names[i], depth+1); err != nil {
				return err
			}
			w.b.WriteString(w.colon)
			return w.write(x[names[i]], depth+1)
		})
	case []any:
		return w.list("[]", len(x), depth, func(i int) error { return w.write(x[i], depth+1) })
	}
	enc := json.NewEncoder(&w.b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("tojson: %w", err)
	}
	w.b.Truncate(w.b.Len() - 1) // the line break
	return nil
}
