package epp

import (
	"unicode/utf8"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/stream"
)

// codec reads and writes ext_proc messages as the stream takes and makes them,
// without the library's messages between (docs/dependencies.md has what that is
// worth). Whatever is unusual, and every other service's messages, are the
// library's.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return in.unmarshal(buf.ReadOnlyData())
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size, fits := out.size()
	if !fits {
		return c.CodecV2.Marshal(out.message())
	}
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(out.append(make([]byte, 0, size)))}, nil
	}
	buf := mem.DefaultBufferPool().Get(size)
	*buf = out.append((*buf)[:0])
	return mem.BufferSlice{mem.NewBuffer(buf, mem.DefaultBufferPool())}, nil
}

// Numbers of fields, as Envoy's external_processor.proto and base.proto have
// them.
const (
	inRequestHeaders, inResponseHeaders   = 2, 3
	inRequestBody, inResponseBody         = 4, 5
	inRequestTrailers, inResponseTrailers = 6, 7
	inMetadata, inConfig                  = 8, 11

	outRequestHeaders, outResponseHeaders = 1, 2
	outRequestBody, outResponseBody       = 3, 4
	outMetadata                           = 8

	headersMap, headersEnd                = 1, 3 // HttpHeaders
	headerKey, headerValue, headerRaw     = 1, 2, 3
	bodyBytes, bodyEnd                    = 1, 2 // HttpBody, StreamedBodyResponse
	configRequest, configResponse         = 1, 2
	theResponse                           = 1 // HeadersResponse, BodyResponse
	commonHeaders, commonBody, clearRoute = 2, 3, 5
	bodyStreamed                          = 3 // BodyMutation
	setHeader, removeHeader               = 1, 2
	metadataFilter                        = 1 // Metadata
	structEntry, entryKey, entryValue     = 1, 1, 2
	valueString, valueStruct, valueList   = 3, 5, 6
	listValue                             = 1
	optionHeader, optionAction            = 1, 3
)

// incoming is a message of Envoy's, as far as anybody reads it.
type incoming struct {
	kind       stream.MessageKind
	known      bool // it has a kind
	end        bool
	configured bool // modes are given
	modes      stream.Modes
	head       header.List
	body       []byte
	// Of the metadata: whether any is given, the subset hint, and who answered.
	described bool
	subset    []string
	hinted    bool
	served    picker.Served
}

func (in *incoming) unmarshal(b []byte) error {
	*in = incoming{}
	if in.read(b) {
		return nil
	}
	m := &extprocv3.ProcessingRequest{}
	if err := protobuf.Unmarshal(b, m); err != nil {
		return err
	}
	in.take(m)
	return nil
}

var kindOf = [...]stream.MessageKind{inRequestHeaders: stream.Headers, inResponseHeaders: stream.ResponseHeaders,
	inRequestBody: stream.Body, inResponseBody: stream.ResponseBody,
	inRequestTrailers: stream.Trailers, inResponseTrailers: stream.ResponseTrailers}

// read reads a message. It is false for one that is broken, or that says
// something twice.
func (in *incoming) read(b []byte) bool {
	var metadata []byte
	ok := fields(b, func(num protowire.Number, v []byte, _ uint64) bool {
		switch num {
		case inRequestHeaders, inResponseHeaders, inRequestBody, inResponseBody, inRequestTrailers, inResponseTrailers:
			if in.known || v == nil {
				return false
			}
			in.known, in.kind = true, kindOf[num]
			switch num {
			case inRequestHeaders, inResponseHeaders:
				return in.readHeaders(v)
			case inRequestBody, inResponseBody:
				return in.readBody(v)
			default:
				var m extprocv3.HttpTrailers // nobody reads them
				return protobuf.Unmarshal(v, &m) == nil
			}
		case inMetadata:
			if metadata != nil || v == nil {
				return false
			}
			metadata = v
		case inConfig:
			if in.configured || v == nil {
				return false
			}
			in.configured = true
			return in.readConfig(v)
		default:
			return num > inConfig // the rest is for others, and hardly ever sent
		}
		return true
	})
	return ok && (metadata == nil || in.readMetadata(metadata))
}

// readMetadata reads, of Envoy's filter metadata, what somebody looks at. It
// comes with every message.
func (in *incoming) readMetadata(b []byte) bool {
	in.described = true
	return fields(b, func(num protowire.Number, v []byte, _ uint64) bool {
		if num != metadataFilter || v == nil {
			return num != metadataFilter
		}
		namespace, values, ok := readEntry(v)
		switch {
		case !ok:
			return false
		case namespace == picker.NamespaceSubset:
			return !in.hinted && fields(values, in.readSubset)
		case namespace == picker.NamespaceLB:
			if in.served.Told {
				return false
			}
			in.served.Told = true
			return fields(values, in.readServed)
		}
		return true
	})
}

// readServed reads a field of the Struct that says who answered.
func (in *incoming) readServed(num protowire.Number, v []byte, _ uint64) bool {
	key, value, ok := readEntry(v)
	if num != structEntry || !ok || key != picker.KeyServed {
		return num == structEntry && ok
	}
	if in.served.Known {
		return false
	}
	return fields(value, func(num protowire.Number, v []byte, _ uint64) bool {
		if in.served.Known || !utf8.Valid(v) {
			return false
		}
		if in.served.Known = num == valueString && v != nil; in.served.Known {
			in.served.Endpoint = string(v)
		}
		return true
	})
}

// readSubset reads a field of the Struct with the subset hint.
func (in *incoming) readSubset(num protowire.Number, v []byte, _ uint64) bool {
	key, value, ok := readEntry(v)
	if num != structEntry || !ok || key != picker.KeySubset {
		return num == structEntry && ok
	}
	return !in.hinted && fields(value, func(num protowire.Number, v []byte, _ uint64) bool {
		if num != valueList || v == nil || in.hinted {
			return false // let the library see what it is
		}
		in.hinted = true
		return fields(v, func(num protowire.Number, v []byte, _ uint64) bool {
			return num == listValue && v != nil && fields(v, func(num protowire.Number, v []byte, _ uint64) bool {
				if num != valueString || v == nil || !utf8.Valid(v) {
					return false
				}
				in.subset = append(in.subset, string(v))
				return true
			})
		})
	})
}

// readEntry reads a map's entry that has both key and value, in this order.
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

// internedKey is a key that somebody looks for, or the empty one.
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

func (in *incoming) readHeaders(b []byte) bool {
	var list []byte
	ok := fields(b, func(num protowire.Number, v []byte, n uint64) bool {
		switch {
		case num == headersMap && v != nil && list == nil:
			list = v
		case num == headersEnd && v == nil:
			in.end = n != 0
		default:
			return false // attributes, which nobody asked for
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
	in.head = make(header.List, 0, count)
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
		in.head = append(in.head, header.Header{Name: header.Lower(parts[headerKey]), Value: string(value)})
		return true
	})
}

func (in *incoming) readBody(b []byte) bool {
	return fields(b, func(num protowire.Number, v []byte, n uint64) bool {
		switch {
		case num == bodyBytes && v != nil:
			in.body = append([]byte(nil), v...)
		case num == bodyEnd && v == nil:
			in.end = n != 0
		default:
			return false
		}
		return true
	})
}

func (in *incoming) readConfig(b []byte) bool {
	in.modes = stream.Modes{Request: modeOf(0), Response: modeOf(0)} // a zero is not sent
	return fields(b, func(num protowire.Number, v []byte, n uint64) bool {
		if v != nil {
			return false
		}
		switch num {
		case configRequest:
			in.modes.Request = modeOf(filterv3.ProcessingMode_BodySendMode(n))
		case configResponse:
			in.modes.Response = modeOf(filterv3.ProcessingMode_BodySendMode(n))
		}
		return true
	})
}

// fields calls f for every field of a message: with the bytes of one that has a
// length, never nil, or the number that another is. It is false where f is, for
// what is broken and for wire types that no field here has.
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

// outgoing is an effect as a message to Envoy.
type outgoing struct {
	*stream.Effect
	modes stream.Modes

	// Bytes of its innermost part, a HeaderMutation or a StreamedBodyResponse, and
	// its dynamic metadata; both of size, for append.
	inner    int
	metadata []byte
}

// size is how many bytes append writes. It is false for what append cannot
// write.
func (o *outgoing) size() (n int, fits bool) {
	o.inner, o.metadata = 0, nil
	switch {
	case o.piece():
		if len(o.Body) > 0 {
			o.inner = sizeOf(len(o.Body))
		}
		if o.End {
			o.inner += 2
		}
	case o.Kind == stream.SendRequestHeaders, o.Kind == stream.SendResponseHeaders:
		if o.inner, fits = sizeOfMutation(o.Set, o.Remove); !fits {
			return 0, false
		}
	default:
		return 0, false
	}
	n = sizeOf(sizeOf(o.common()))
	if len(o.Metadata) > 0 {
		if o.metadata, fits = appendMetadata(nil, o.Metadata); !fits {
			return 0, false
		}
		n += sizeOf(len(o.metadata))
	}
	return n, true
}

// common is how many bytes the CommonResponse has.
func (o *outgoing) common() (n int) {
	switch {
	case o.piece():
		return sizeOf(sizeOf(o.inner))
	case o.inner > 0:
		n = sizeOf(o.inner)
	}
	if o.Kind == stream.SendRequestHeaders {
		n += 2
	}
	return n
}

// piece says whether it is a piece of a body that has no other limits than its
// own.
func (o *outgoing) piece() bool {
	return o.Kind == stream.SendRequestBody && o.modes.Request == stream.FullDuplex ||
		o.Kind == stream.SendResponseBody && o.modes.Response == stream.FullDuplex
}

var outField = [...]protowire.Number{stream.SendRequestHeaders: outRequestHeaders,
	stream.SendResponseHeaders: outResponseHeaders,
	stream.SendRequestBody:     outRequestBody, stream.SendResponseBody: outResponseBody}

// append writes what size has counted.
func (o *outgoing) append(b []byte) []byte {
	b = appendLength(b, outField[o.Kind], sizeOf(o.common()))
	b = appendLength(b, theResponse, o.common())
	if o.piece() {
		b = appendLength(b, commonBody, sizeOf(o.inner))
		b = appendLength(b, bodyStreamed, o.inner)
		if len(o.Body) > 0 {
			b = append(appendLength(b, bodyBytes, len(o.Body)), o.Body...)
		}
		if o.End {
			b = appendNumber(b, bodyEnd, 1)
		}
	} else {
		if o.inner > 0 {
			b = appendMutation(appendLength(b, commonHeaders, o.inner), o.Set, o.Remove)
		}
		if o.Kind == stream.SendRequestHeaders {
			b = appendNumber(b, clearRoute, 1)
		}
	}
	if len(o.metadata) > 0 {
		b = append(appendLength(b, outMetadata, len(o.metadata)), o.metadata...)
	}
	return b
}

// overwrite is HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD.
const overwrite = 2

func sizeOfMutation(set header.List, remove []string) (n int, fits bool) {
	for i := range set {
		if !utf8.ValidString(set[i].Name) {
			return 0, false
		}
		n += sizeOf(sizeOf(sizeOfHeader(&set[i])) + 2)
	}
	for _, name := range remove {
		if !utf8.ValidString(name) {
			return 0, false
		}
		n += sizeOf(len(name))
	}
	return n, true
}

func sizeOfHeader(h *header.Header) (n int) {
	if h.Name != "" {
		n += sizeOf(len(h.Name))
	}
	if h.Value != "" {
		n += sizeOf(len(h.Value))
	}
	return n
}

func appendMutation(b []byte, set header.List, remove []string) []byte {
	for i := range set {
		h := &set[i]
		n := sizeOfHeader(h)
		b = appendLength(b, setHeader, sizeOf(n)+2)
		b = appendLength(b, optionHeader, n)
		if h.Name != "" {
			b = append(appendLength(b, headerKey, len(h.Name)), h.Name...)
		}
		if h.Value != "" {
			b = append(appendLength(b, headerRaw, len(h.Value)), h.Value...)
		}
		b = appendNumber(b, optionAction, overwrite)
	}
	for _, name := range remove {
		b = append(appendLength(b, removeHeader, len(name)), name...)
	}
	return b
}

// appendMetadata writes dynamic metadata that has nothing but text.
func appendMetadata(b []byte, m stream.Metadata) ([]byte, bool) {
	for namespace, values := range m {
		if !utf8.ValidString(namespace) {
			return nil, false
		}
		n := 0
		for k, v := range values {
			text, ok := v.(string)
			if !ok || !utf8.ValidString(k) || !utf8.ValidString(text) {
				return nil, false
			}
			n += sizeOf(sizeOf(len(k)) + sizeOf(sizeOf(len(text))))
		}
		b = appendLength(b, structEntry, sizeOf(len(namespace))+sizeOf(sizeOf(n)))
		b = append(appendLength(b, entryKey, len(namespace)), namespace...)
		b = appendLength(appendLength(b, entryValue, sizeOf(n)), valueStruct, n)
		for k, v := range values {
			text := v.(string)
			b = appendLength(b, structEntry, sizeOf(len(k))+sizeOf(sizeOf(len(text))))
			b = append(appendLength(b, entryKey, len(k)), k...)
			b = appendLength(b, entryValue, sizeOf(len(text)))
			b = append(appendLength(b, valueString, len(text)), text...)
		}
	}
	return b, true
}

// sizeOf is what a field of so many bytes takes, whose number is below 16.
func sizeOf(n int) int { return 1 + protowire.SizeBytes(n) }

func appendLength(b []byte, num protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(n))
}

func appendNumber(b []byte, num protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), n)
}
