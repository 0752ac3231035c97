package plugins

import (
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// parser is a request parser as a plug-in.
type parser struct {
	named
	p parse.Parser
}

func newParser(p parse.Parser) picker.Factory {
	return func(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
		return &parser{base(p.Type(), name), p}, nil
	}
}

// Parser is the parser.
func (p *parser) Parser() parse.Parser { return p.p }
