package parse

import (
	"fmt"
	"slices"
	"strings"
)

// CleanPath returns a :path without query and without the slash at its end.
func CleanPath(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// hasSuffix matches the end of a path, case-sensitively, whatever stands
// before it: a gateway may mount the API anywhere.
func hasSuffix(path, suffix string) bool {
	return strings.HasSuffix(strings.TrimSuffix(strings.TrimSpace(path), "/"), suffix)
}

func hasAnySuffix(path string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return hasSuffix(path, s) })
}

// DefaultPath is the path of a request without one, such as a stream whose headers never came.
const DefaultPath = "/v1/completions"

// Choose returns the first parser that claims a path. The error's text is the real
// EPP's.
func Choose(parsers []Parser, path string) (Parser, error) {
	path = CleanPath(path)
	for _, p := range parsers {
		if p.Claims(path) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no parser registered matching path suffix for: %s", path)
}

// New returns the parser with the given type name, or nil.
func New(name string) Parser {
	for _, p := range All {
		if p.Type() == name {
			return p
		}
	}
	return nil
}

// All are the parsers.
var All = []Parser{OpenAI{}, Anthropic{}, VLLMHTTP{}, VLLMGRPC{}, VertexAI{}, Passthrough{}}

// Type names of the parsers in the configuration.
const (
	TypeOpenAI      = "openai-parser"
	TypeAnthropic   = "anthropic-parser"
	TypeVLLMHTTP    = "vllmhttp-parser"
	TypeVLLMGRPC    = "vllmgrpc-parser"
	TypeVertexAI    = "vertexai-parser"
	TypePassthrough = "passthrough-parser"
)
