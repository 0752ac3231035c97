package parse

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/windtunnel/windtunnel/core/wire/protofields"
)

// VertexAI reads Vertex AI's PredictionService over gRPC: ChatCompletions,
// RawPredict and StreamRawPredict carry OpenAI's JSON inside a
// google.api.HttpBody. Other methods are passed on unread.
type VertexAI struct{}

// vertexMethod is a method to read, with the message's name for errors and the OpenAI path of the JSON inside.
type vertexMethod struct{ method, message, path string }

var vertexMethods = []vertexMethod{
	{"PredictionService/ChatCompletions", "ChatCompletionsRequest", "/chat/completions"},
	{"PredictionService/StreamRawPredict", "StreamRawPredictRequest", "/responses"},
	{"PredictionService/RawPredict", "RawPredictRequest", "/responses"},
}

// Type returns the parser's name in the configuration.
func (VertexAI) Type() string { return TypeVertexAI }

// Claims reports whether the method is one of the three.
func (VertexAI) Claims(path string) bool {
	return slices.ContainsFunc(vertexMethods, func(m vertexMethod) bool { return hasSuffix(path, m.method) })
}

// Parse reads the JSON inside the message. The message itself is passed on as
// it is, so that the model in it is never rewritten.
func (VertexAI) Parse(path string, raw []byte) (*Body, error) {
	for _, m := range vertexMethods {
		if !hasSuffix(CleanPath(path), m.method) {
			continue
		}
		msg, err := frame(raw)
		if err != nil {
			return nil, fmt.Errorf("invalid or unsupported gRPC payload: %w", err)
		}
		inner, err := field(msg, 2) // http_body
		if err != nil {
			return nil, fmt.Errorf("unmarshaling %s: %w", m.message, err)
		}
		if inner == nil {
			return nil, errors.New(m.message + " has no HttpBody")
		}
		text, err := field(inner, 2) // data
		if err != nil {
			return nil, fmt.Errorf("unmarshaling %s: %w", m.message, err)
		}
		b, err := OpenAI{}.Parse(m.path, text)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", m.message, err)
		}
		b.Parser, b.raw, b.Wrapped = TypeVertexAI, raw, true
		return b, nil
	}
	return &Body{Kind: Opaque, Parser: TypeVertexAI, raw: raw, MaxOutputTokens: -1, SkipResponse: true}, nil
}

// Usage reads token counts from the JSON inside an HttpBody.
func (VertexAI) Usage(body []byte, _ bool) (Usage, bool) {
	msg, err := frame(body)
	if err != nil {
		return Usage{}, false
	}
	text, err := field(msg, 2)
	if err != nil {
		return Usage{}, false
	}
	return OpenAI{}.Usage(text, false)
}

// field returns the last value of a field that holds bytes, nil when it is absent.
func field(msg []byte, want protowire.Number) (out []byte, err error) {
	err = protofields.Each(msg, func(num protowire.Number, typ protowire.Type, _ uint64, b []byte) error {
		if num == want && typ == protowire.BytesType {
			if out = b; out == nil {
				out = []byte{}
			}
		}
		return nil
	})
	return out, err
}
