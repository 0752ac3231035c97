package parse

import "github.com/windtunnel/windtunnel/core/wire/described"

// fieldsRead holds the fields that a parser reads of a body at a path.
type fieldsRead struct {
	parser Parser
	path   string
	body   *Body // nil where its prompt must be there
}

// Memory is memory for what Describe makes.
type Memory struct {
	body   Body
	prompt [1]Prompt
}

// Describe returns the Body that Parse would return for the described body's bytes. It writes out only the bytes that
// it needs.
func Describe(ps Parser, path string, d *described.Body, memory *Memory) (*Body, error) {
	switch ps.(type) {
	case OpenAI, VLLMGRPC:
	default:
		return ps.Parse(path, d.Bytes())
	}
	known, _ := d.Picker.(*fieldsRead)
	if known == nil || known.path != path || known.parser != ps {
		known = &fieldsRead{parser: ps, path: path}
		d.Picker = known
		b, err := ps.Parse(path, d.Sample())
		if err == nil && (b.Kind == Chat && d.Chat || b.Kind == Completions && !d.Chat && !d.Generate ||
			b.Kind == GRPCGenerate && d.Generate) {
			known.body = b
		}
	}
	if known.body == nil {
		return ps.Parse(path, d.Bytes())
	}
	if memory == nil {
		memory = new(Memory)
	}
	b := &memory.body
	*b = *known.body
	b.raw, b.of = nil, d
	memory.prompt[0] = Prompt{of: d, length: d.PromptLen(&asSent, false)}
	b.Prompts = memory.prompt[:]
	return b, nil
}
