package plugins

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
)

// parser is a request parser as a plug-in.
type parser struct {
	named
	p parse.Parser
}

func newParser(p parse.Parser) picker.Factory {
	return func(*picker.Builder, string, picker.Params) (picker.Plugin, error) {
		return &parser{p: p}, nil
	}
}

// Parser implements picker.ParserPlugin.
func (p *parser) Parser() parse.Parser { return p.p }
