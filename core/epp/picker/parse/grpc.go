package parse

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/windtunnel/windtunnel/core/wire/protofields"
)

// VLLMGRPC reads vLLM's gRPC engine API (vllm.grpc.engine.VllmEngine):
// Generate and Embed. Other methods are passed on unread.
type VLLMGRPC struct{}

const (
	grpcGenerate = "VllmEngine/Generate"
	grpcEmbed    = "VllmEngine/Embed"
)

// Type returns the parser's name in the configuration.
func (VLLMGRPC) Type() string { return TypeVLLMGRPC }

// Claims reports whether the method is Generate or Embed.
func (VLLMGRPC) Claims(path string) bool {
	return hasSuffix(path, grpcGenerate) || hasSuffix(path, grpcEmbed)
}

// frame takes the message out of a length-prefixed gRPC frame.
func frame(data []byte) ([]byte, error) {
	if len(data) < 5 {
		return nil, fmt.Errorf("invalid gRPC frame: expected at least 5 bytes for header, got %d", len(data))
	}
	if data[0] == 1 {
		return nil, errors.New("compressed gRPC payload is not supported")
	}
	n := uint64(binary.BigEndian.Uint32(data[1:5]))
	if uint64(len(data)) < 5+n {
		return nil, fmt.Errorf("incomplete gRPC payload: header indicates %d bytes, but only %d bytes are available", n,
			len(data)-5)
	}
	return data[5 : 5+n], nil
}

// tokenized reads TokenizedInput.input_ids, packed or not.
func tokenized(msg []byte) ([]uint32, error) {
	ids := []uint32{}
	err := protofields.Each(msg, func(num protowire.Number, typ protowire.Type, v uint64, b []byte) error {
		if num != 2 {
			return nil
		}
		if typ == protowire.VarintType {
			ids = append(ids, uint32(v))
		}
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			ids, b = append(ids, uint32(v)), b[n:]
		}
		return nil
	})
	return ids, err
}

// Parse reads a Generate or Embed message.
func (VLLMGRPC) Parse(path string, raw []byte) (*Body, error) {
	path = CleanPath(path)
	b := &Body{Kind: GRPCGenerate, Parser: TypeVLLMGRPC, raw: raw, MaxOutputTokens: -1}
	if hasSuffix(path, grpcEmbed) {
		b.Kind = GRPCEmbed
	} else if !hasSuffix(path, grpcGenerate) {
		b.Kind, b.SkipResponse = Opaque, true
		return b, nil
	}
	msg, err := frame(raw)
	if err != nil {
		return nil, errors.New("invalid or unsupported gRPC payload")
	}
	err = protofields.Each(msg, func(num protowire.Number, typ protowire.Type, v uint64, m []byte) error {
		switch {
		case num == 2 && typ == protowire.BytesType:
			ids, err := tokenized(m)
			if err != nil {
				return err
			}
			b.Prompts = []Prompt{TokenPrompt(ids)}
		case num == 3 && typ == protowire.BytesType && b.Kind == GRPCGenerate:
			b.Prompts = []Prompt{TextPrompt(m)}
		case num == 4 && typ == protowire.BytesType:
			return protofields.Each(m, func(num protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
				if num == 8 && typ == protowire.VarintType {
					b.MaxOutputTokens = int64(uint32(v))
				}
				return nil
			})
		case num == 5 && typ == protowire.VarintType:
			b.Stream = v != 0
		case num == 7 && typ == protowire.BytesType:
			return protofields.Each(m, func(num protowire.Number, _ protowire.Type, _ uint64, _ []byte) error {
				if num == 5 {
					b.Multimodal++
				}
				return nil
			})
		}
		return nil
	})
	switch {
	case err != nil && b.Kind == GRPCEmbed:
		return nil, fmt.Errorf("unmarshaling EmbedRequest: %w", err)
	case err != nil:
		return nil, fmt.Errorf("unmarshaling GenerateRequest: %w", err)
	case b.Prompts == nil && b.Kind == GRPCEmbed:
		return nil, errors.New("missing tokenized input in EmbedRequest")
	case b.Prompts == nil:
		return nil, errors.New("not supported request inputType")
	}
	return b, nil
}

// Usage reads token counts from a GenerateResponse or EmbedResponse.
func (VLLMGRPC) Usage(body []byte, _ bool) (u Usage, ok bool) {
	msg, err := frame(body)
	if err != nil {
		return u, false
	}
	_ = protofields.Each(msg, func(num protowire.Number, typ protowire.Type, v uint64, m []byte) error {
		if num == 2 && typ == protowire.VarintType { // EmbedResponse.prompt_tokens
			u.PromptTokens, ok = int(uint32(v)), true
		}
		if (num != 1 && num != 2) || typ != protowire.BytesType {
			return nil
		}
		first := num + 1 // chunk: prompt 2, completion 3, cached 4; complete: 3, 4, 5
		return protofields.Each(m, func(f protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
			if typ != protowire.VarintType {
				return nil
			}
			switch f {
			case first:
				u.PromptTokens, ok = int(uint32(v)), true
			case first + 1:
				u.CompletionTokens, ok = int(uint32(v)), true
			case first + 2:
				u.CachedTokens = int(uint32(v))
			}
			return nil
		})
	})
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u, ok
}
