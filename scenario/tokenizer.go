package scenario

import (
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/internal/files"
)

// readTokenizer reads a pool's tokenizer and chat template.
func (s *checker) readTokenizer(p *Pool, path, dir string) {
	m := &p.ModelServer
	switch {
	case m.Tokenizer == "" && m.ChatTemplate == "":
		return
	case m.Tokenizer == "":
		s.bad(path+".chatTemplate", "given without a tokenizer",
			"tokenizer beside it: the directory of the model's tokenizer.json")
		return
	}
	model, err := chattemplate.Load(beside(dir, m.Tokenizer), beside(dir, m.ChatTemplate), files.Read)
	if err != nil {
		s.bad(path+".tokenizer", err.Error(),
			"the directory of a model's tokenizer.json, from the scenario's own directory")
		return
	}
	p.model = model
	s.read = append(s.read, model.Read...)
}

// tokens returns the pool's tokenizer: tokens.Packed if the scenario names none.
func (p *Pool) tokens() plan.Tokens {
	if p.model == nil {
		return plan.Tokens{Tokenizer: tokens.Packed{}}
	}
	return plan.Tokens{Tokenizer: p.model.Tokenizer, JSON: p.model.JSON, Template: p.model.Template}
}
