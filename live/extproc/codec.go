// Package extproc reads and writes Envoy's external-processing protocol: it decodes Envoy's messages into the inputs
// of core/epp/stream and encodes that package's effects. live/epp and live/bbr use it to serve streams. Begin with
// NewCodec.
package extproc

import (
	"errors"
	"unicode/utf8"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// codec converts between ext_proc messages and the stream's inputs and effects without the protobuf library's message
// types, which saves time (docs/dependencies.md has the measurement). The library handles unusual messages and all
// other services' messages.
type codec struct{ encoding.CodecV2 }

func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// streamWorkers is how many streams are served at once without starting a goroutine each.
const streamWorkers = 256

// ServerOptions returns the options of all of windtunnel's ext_proc servers.
func ServerOptions() []grpc.ServerOption {
	return append(ConnectionOptions(), grpc.ForceServerCodecV2(NewCodec()))
}

// ConnectionOptions are ServerOptions without the codec, for another server that is compared with windtunnel's.
func ConnectionOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(1 << 20),
		grpc.InitialWindowSize(1 << 20), grpc.InitialConnWindowSize(16 << 20),
		grpc.WriteBufferSize(64 << 10), grpc.ReadBufferSize(64 << 10),
		// Workers' stacks have already grown. Further streams, mostly held ones, get goroutines of their own.
		grpc.NumStreamWorkers(streamWorkers),
	}
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*In)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return in.unmarshal(buf.ReadOnlyData())
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*Out)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := out.bound()
	if mem.IsBelowBufferPoolingThreshold(size) {
		b, err := out.append(make([]byte, 0, size))
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	buf := mem.DefaultBufferPool().Get(size)
	b, err := out.append((*buf)[:0])
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, mem.DefaultBufferPool())}, err
}

// Field numbers of Envoy's external_processor.proto and base.proto.
const (
	inRequestHeaders, inResponseHeaders   = 2, 3
	inRequestBody, inResponseBody         = 4, 5
	inRequestTrailers, inResponseTrailers = 6, 7
	inMetadata, inConfig                  = 8, 11

	outRequestHeaders, outResponseHeaders = 1, 2
	outRequestBody, outResponseBody       = 3, 4
	outRequestTrailers                    = 5
	outResponseTrailers                   = 6
	outAnswer                             = 7
	outMetadata                           = 8

	headersMap, headersEnd                = 1, 3 // HttpHeaders
	headerKey, headerValue, headerRaw     = 1, 2, 3
	bodyBytes, bodyEnd                    = 1, 2 // HttpBody, StreamedBodyResponse
	configRequest, configResponse         = 1, 2
	theResponse                           = 1 // HeadersResponse, BodyResponse
	commonHeaders, commonBody, clearRoute = 2, 3, 5
	bodyWhole, bodyStreamed               = 1, 3 // BodyMutation
	answerStatus, answerHeaders           = 1, 2 // ImmediateResponse
	answerBody                            = 3
	statusCode                            = 1 // HttpStatus
	setHeader, removeHeader               = 1, 2
	metadataFilter                        = 1 // Metadata
	structEntry, entryKey, entryValue     = 1, 1, 2
	valueString, valueStruct, valueList   = 3, 5, 6
	listValue                             = 1
	optionHeader, optionAction            = 1, 3
)

// In is one message from Envoy, with the fields that windtunnel reads.
type In struct {
	Kind       stream.MessageKind
	Known      bool // the message has a kind
	End        bool
	Configured bool // the message sets modes
	Modes      stream.Modes
	Head       header.List
	Body       []byte
	// From the metadata: whether there is any, the subset hint, and the endpoint that answered.
	Described bool
	Subset    []string
	Hinted    bool
	Served    picker.Served
}

func (in *In) unmarshal(b []byte) error {
	*in = In{}
	if in.read(b) {
		return nil
	}
	// The library writes an unusual message in the usual form: each field once.
	m := &extprocv3.ProcessingRequest{}
	if err := (protobuf.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, m); err != nil {
		return err
	}
	usual, err := protobuf.Marshal(m)
	if *in = (In{}); err == nil && !in.read(usual) {
		err = errors.New("ext_proc message of an unknown form")
	}
	return err
}

var kindOf = [...]stream.MessageKind{inRequestHeaders: stream.Headers, inResponseHeaders: stream.ResponseHeaders,
	inRequestBody: stream.Body, inResponseBody: stream.ResponseBody,
	inRequestTrailers: stream.Trailers, inResponseTrailers: stream.ResponseTrailers}

// read decodes a message. It returns false for a malformed message, and for one that has a field twice.
func (in *In) read(b []byte) bool {
	var metadata []byte
	ok := fields(b, func(num protowire.Number, v []byte, _ uint64) bool {
		switch num {
		case inRequestHeaders, inResponseHeaders, inRequestBody, inResponseBody, inRequestTrailers, inResponseTrailers:
			if in.Known || v == nil {
				return false
			}
			in.Known, in.Kind = true, kindOf[num]
			switch num {
			case inRequestHeaders, inResponseHeaders:
				return in.readHeaders(v)
			case inRequestBody, inResponseBody:
				return in.readBody(v)
			default:
				var m extprocv3.HttpTrailers // windtunnel does not read trailers
				return protobuf.Unmarshal(v, &m) == nil
			}
		case inMetadata:
			if metadata != nil || v == nil {
				return false
			}
			metadata = v
		case inConfig:
			if in.Configured || v == nil {
				return false
			}
			in.Configured = true
			return in.readConfig(v)
		}
		return true
	})
	return ok && (metadata == nil || in.readMetadata(metadata))
}

// readMetadata reads the used parts of Envoy's filter metadata, which comes with every message.
func (in *In) readMetadata(b []byte) bool {
	in.Described = true
	return fields(b, func(num protowire.Number, v []byte, _ uint64) bool {
		if num != metadataFilter || v == nil {
			return num != metadataFilter
		}
		namespace, values, ok := readEntry(v)
		switch {
		case !ok:
			return false
		case namespace == picker.NamespaceSubset:
			return !in.Hinted && fields(values, in.readSubset)
		case namespace == picker.NamespaceLB:
			if in.Served.Given {
				return false
			}
			in.Served.Given = true
			return fields(values, in.readServed)
		}
		return true
	})
}

// readServed reads one field of the Struct that names the endpoint that answered.
func (in *In) readServed(num protowire.Number, v []byte, _ uint64) bool {
	key, value, ok := readEntry(v)
	if num != structEntry || !ok || key != picker.KeyServed {
		return num == structEntry && ok
	}
	kind, text, ok := readValue(value)
	if in.Served.Known || !ok {
		return false
	}
	if in.Served.Known = kind == valueString; in.Served.Known {
		in.Served.Endpoint = string(text)
	}
	return true
}

// readValue reads a Value, which is of one kind: a string's text or a list's values.
func readValue(b []byte) (kind protowire.Number, content []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, true
	}
	kind, wire, n := protowire.ConsumeTag(b)
	if n < 0 || protowire.ConsumeFieldValue(kind, wire, b[n:]) != len(b)-n {
		return 0, nil, false
	}
	if wire == protowire.BytesType {
		content, _ = protowire.ConsumeBytes(b[n:])
	}
	text := kind == valueString || kind == valueList
	return kind, content, (!text || wire == protowire.BytesType) && (kind != valueString || utf8.Valid(content))
}

// readSubset reads one field of the Struct with the subset hint.
func (in *In) readSubset(num protowire.Number, v []byte, _ uint64) bool {
	key, value, ok := readEntry(v)
	if num != structEntry || !ok || key != picker.KeySubset {
		return num == structEntry && ok
	}
	kind, list, ok := readValue(value)
	if in.Hinted || !ok {
		return false
	}
	if in.Hinted = kind == valueList; !in.Hinted {
		return true // anything but a list is no hint
	}
	return fields(list, func(_ protowire.Number, v []byte, _ uint64) bool {
		kind, text, ok := readValue(v)
		if kind == valueString { // what is no string matches no endpoint
			in.Subset = append(in.Subset, string(text))
		}
		return ok
	})
}

// readEntry reads a map entry that has both key and value, in this order.
func readEntry(b []byte) (key string, value []byte, ok bool) {
	n := 0
	ok = fields(b, func(num protowire.Number, v []byte, _ uint64) bool {
		if n++; v == nil || int(num) != n || n > 2 {
			return false
		}
		if n == entryKey {
			key = internedKey(v)
			return utf8.Valid(v)
		}
		value = v
		return true
	})
	return key, value, ok && n == entryValue
}

// internedKey returns the constant for a key that this package looks for, or "" for any other.
func internedKey(b []byte) string {
	switch string(b) {
	case picker.NamespaceSubset:
		return picker.NamespaceSubset
	case picker.NamespaceLB:
		return picker.NamespaceLB
	case picker.KeyServed:
		return picker.KeyServed
	case picker.KeySubset:
		return picker.KeySubset
	}
	return ""
}

func (in *In) readHeaders(b []byte) bool {
	var list []byte
	ok := fields(b, func(num protowire.Number, v []byte, n uint64) bool {
		switch {
		case num == headersMap && v != nil && list == nil:
			list = v
		case num == headersEnd && v == nil:
			in.End = n != 0
		default:
			return num != headersMap && num != headersEnd // windtunnel does not request attributes
		}
		return true
	})
	if !ok {
		return false
	}
	count := 0
	if !fields(list, func(num protowire.Number, v []byte,
		_ uint64) bool {
		count++
		return num == headersMap && v != nil
	}) {
		return false
	}
	in.Head = make(header.List, 0, count)
	return fields(list, func(_ protowire.Number, v []byte, _ uint64) bool {
		var parts [headerRaw + 1][]byte
		if !fields(v, func(num protowire.Number, v []byte, _ uint64) bool {
			if num > headerRaw || v == nil || parts[num] != nil {
				return false
			}
			parts[num] = v
			return true
		}) || !utf8.Valid(parts[headerKey]) || !utf8.Valid(parts[headerValue]) {
			return false
		}
		value := parts[headerRaw]
		if len(value) == 0 {
			value = parts[headerValue]
		}
		in.Head = append(in.Head, header.Header{Name: header.Lower(parts[headerKey]), Value: string(value)})
		return true
	})
}

func (in *In) readBody(b []byte) bool {
	return fields(b, func(num protowire.Number, v []byte, n uint64) bool {
		switch {
		case num == bodyBytes && v != nil:
			in.Body = append([]byte(nil), v...)
		case num == bodyEnd && v == nil:
			in.End = n != 0
		default:
			return num != bodyBytes && num != bodyEnd
		}
		return true
	})
}

func (in *In) readConfig(b []byte) bool {
	in.Modes = stream.Modes{Request: modeOf(0), Response: modeOf(0)} // zero values are not sent
	return fields(b, func(num protowire.Number, v []byte, n uint64) bool {
		if v != nil {
			return false
		}
		switch num {
		case configRequest:
			in.Modes.Request = modeOf(filterv3.ProcessingMode_BodySendMode(n))
		case configResponse:
			in.Modes.Response = modeOf(filterv3.ProcessingMode_BodySendMode(n))
		}
		return true
	})
}

// fields calls f for each field of a message, with the bytes of a field that has a length (never nil) or with the
// number of any other. It returns false if f does, if the message is malformed, or if a field has a wire type that
// this package does not use.
func fields(b []byte, f func(num protowire.Number, v []byte, n uint64) bool) bool {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var v []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		default:
			return false
		}
		if n < 0 || !f(num, v, number) {
			return false
		}
		b = b[n:]
	}
	return true
}

func modeOf(m filterv3.ProcessingMode_BodySendMode) stream.BodyMode {
	switch m {
	case filterv3.ProcessingMode_NONE:
		return stream.NoBody
	case filterv3.ProcessingMode_STREAMED:
		return stream.Streamed
	case filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_BUFFERED_PARTIAL:
		return stream.Buffered
	}
	return stream.FullDuplex
}
