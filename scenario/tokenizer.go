package scenario

import (
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/internal/files"
)

// readTokenizer reads a pool's tokenizer and chat template.
func (s *Scenario) readTokenizer(p *Pool, path, dir string) Problems {
	m := &p.ModelServer
	switch {
	case m.Tokenizer == "" && m.ChatTemplate == "":
		return nil
	case m.Tokenizer == "":
		return Problems{s.problem(path+".chatTemplate", "given without a tokenizer",
			"tokenizer beside it: the directory of the model's tokenizer.json")}
	}
	model, err := chattemplate.Load(beside(dir, m.Tokenizer), beside(dir, m.ChatTemplate), files.Read)
	if err != nil {
		return Problems{s.problem(path+".tokenizer", err.Error(),
			"the directory of a model's tokenizer.json, from the scenario's own directory")}
	}
	p.model = model
	s.read = append(s.read, model.Read...)
	return nil
}

// tokens is how the pool's texts are read: as tokens.Packed has it where the scenario names no tokenizer.
func (p *Pool) tokens() plan.Tokens {
	if p.model == nil {
		return plan.Tokens{Tokenizer: tokens.Packed{}}
	}
	return plan.Tokens{Tokenizer: p.model.Tokenizer, JSON: p.model.JSON, Template: p.model.Template}
}
