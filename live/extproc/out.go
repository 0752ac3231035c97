package extproc

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Out is an effect to encode as a message to Envoy. Modes are the stream's body modes.
type Out struct {
	*stream.Effect
	Modes stream.Modes
}

// bound estimates how many bytes append writes.
func (o *Out) bound() int {
	n := 64 + len(o.Body) + 160*len(o.Metadata)
	for i := range o.Set {
		n += 16 + len(o.Set[i].Name) + len(o.Set[i].Value)
	}
	return n
}

// append encodes the message and appends it to b.
func (o *Out) append(b []byte) ([]byte, error) {
	w := writer{b: b}
	switch o.Kind {
	case stream.ContinueHeaders:
		w.bytes(outRequestHeaders, "")
	case stream.SendRequestHeaders:
		w.common(outRequestHeaders, 0, func() {
			w.mutation(commonHeaders, o.Set, o.Remove)
			w.number(clearRoute, 1)
		})
	case stream.SendRequestBody:
		if o.Modes.Request == stream.FullDuplex {
			w.streamed(outRequestBody, o.Effect)
			break
		}
		w.common(outRequestBody, len(o.Body), func() {
			if o.Modes.Request == stream.Buffered {
				w.mutation(commonHeaders, o.Set, o.Remove)
				w.replaced(o.Effect)
				w.number(clearRoute, 1)
			}
		})
	case stream.PassRequestTrailers:
		w.bytes(outRequestTrailers, "")
	case stream.SendResponseHeaders:
		w.common(outResponseHeaders, 0, func() { w.mutation(commonHeaders, o.Set, o.Remove) })
	case stream.SendResponseBody:
		if o.Modes.Response == stream.FullDuplex {
			w.streamed(outResponseBody, o.Effect)
			break
		}
		w.common(outResponseBody, len(o.Body), func() { w.replaced(o.Effect) })
	case stream.PassResponseTrailers:
		w.bytes(outResponseTrailers, "")
	case stream.SendAnswer:
		w.nested(outAnswer, len(o.Answer.Body), func() {
			w.nested(answerStatus, 0, func() { w.number(statusCode, uint64(o.Answer.Status)) })
			w.mutation(answerHeaders, o.Answer.Set, nil)
			if len(o.Answer.Body) > 0 {
				w.b = protowire.AppendBytes(protowire.AppendTag(w.b, answerBody, protowire.BytesType), o.Answer.Body)
			}
		})
	default:
		return nil, fmt.Errorf("ext_proc has no message for effect %d", o.Kind)
	}
	if len(o.Metadata) > 0 {
		w.nested(outMetadata, 0, func() { w.metadata(o.Metadata) })
	}
	return w.b, w.err
}

// writer appends fields, and keeps the error of the first text that is not UTF-8.
type writer struct {
	b   []byte
	err error
}

// nested writes a field that holds other fields. It reserves the bytes of a length of size, and moves the content if
// the actual length needs more or fewer.
func (w *writer) nested(num protowire.Number, size int, fill func()) {
	at := len(w.b) + protowire.SizeTag(num)
	w.length(num, size)
	from := len(w.b)
	fill()
	n := len(w.b) - from
	if more := at + protowire.SizeVarint(uint64(n)) - from; more > 0 {
		w.b = append(w.b, make([]byte, more)...)
		copy(w.b[from+more:], w.b[from:from+n])
	} else if more < 0 {
		copy(w.b[from+more:], w.b[from:])
		w.b = w.b[:len(w.b)+more]
	}
	protowire.AppendVarint(w.b[:at], uint64(n))
}

func (w *writer) number(num protowire.Number, n uint64) {
	w.b = protowire.AppendVarint(protowire.AppendTag(w.b, num, protowire.VarintType), n)
}

func (w *writer) bytes(num protowire.Number, text string) {
	w.b = protowire.AppendString(protowire.AppendTag(w.b, num, protowire.BytesType), text)
}

func (w *writer) text(num protowire.Number, text string) {
	if w.bytes(num, text); !utf8.ValidString(text) && w.err == nil {
		w.err = fmt.Errorf("ext_proc takes UTF-8 only, not %q", text)
	}
}

// common writes the CommonResponse of headers or of a body.
func (w *writer) common(num protowire.Number, size int, fill func()) {
	w.nested(num, size, func() { w.nested(theResponse, size, fill) })
}

// streamed writes one piece of a body in full-duplex mode. Most messages are of this kind, so it computes their
// lengths before it writes them.
func (w *writer) streamed(num protowire.Number, e *stream.Effect) {
	n := 0
	if len(e.Body) > 0 {
		n = sizeOf(len(e.Body))
	}
	if e.End {
		n += 2
	}
	w.length(num, sizeOf(sizeOf(sizeOf(n))))
	w.length(theResponse, sizeOf(sizeOf(n)))
	w.length(commonBody, sizeOf(n))
	w.length(bodyStreamed, n)
	if len(e.Body) > 0 {
		w.length(bodyBytes, len(e.Body))
		w.b = append(w.b, e.Body...)
	}
	if e.End {
		w.number(bodyEnd, 1)
	}
}

// sizeOf returns the encoded size of a field of n bytes with a field number below 16.
func sizeOf(n int) int { return 1 + protowire.SizeBytes(n) }

func (w *writer) length(num protowire.Number, n int) {
	w.b = protowire.AppendVarint(protowire.AppendTag(w.b, num, protowire.BytesType), uint64(n))
}

// replaced writes a new body, or nothing where the original stays.
func (w *writer) replaced(e *stream.Effect) {
	if e.Replace {
		w.nested(commonBody, len(e.Body), func() {
			w.b = protowire.AppendBytes(protowire.AppendTag(w.b, bodyWhole, protowire.BytesType), e.Body)
		})
	}
}

// overwrite is HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD.
const overwrite = 2

func (w *writer) mutation(num protowire.Number, set header.List, remove []string) {
	if len(set)+len(remove) == 0 {
		return
	}
	w.nested(num, 1<<7, func() {
		for i := range set {
			h := &set[i]
			w.nested(setHeader, len(h.Name)+len(h.Value), func() {
				w.nested(optionHeader, len(h.Name)+len(h.Value), func() {
					if h.Name != "" {
						w.text(headerKey, h.Name)
					}
					if h.Value != "" {
						w.bytes(headerRaw, h.Value)
					}
				})
				w.number(optionAction, overwrite)
			})
		}
		for _, name := range remove {
			w.text(removeHeader, name)
		}
	})
}

// metadata writes a Struct of Structs. It leaves out values that JSON cannot represent.
func (w *writer) metadata(m stream.Metadata) {
	for namespace, values := range m {
		w.nested(structEntry, 0, func() {
			w.text(entryKey, namespace)
			w.nested(entryValue, 0, func() { w.nested(valueStruct, 0, func() { w.values(values) }) })
		})
	}
}

func (w *writer) values(values map[string]any) {
	for k, v := range values {
		text, plain := v.(string)
		value, err := []byte(nil), error(nil)
		if !plain {
			of, bad := structpb.NewValue(v)
			if bad != nil {
				continue
			}
			if value, err = protobuf.Marshal(of); err != nil && w.err == nil {
				w.err = err
			}
		}
		w.nested(structEntry, 0, func() {
			w.text(entryKey, k)
			w.nested(entryValue, 0, func() {
				if plain {
					w.text(valueString, text)
				} else {
					w.b = append(w.b, value...)
				}
			})
		})
	}
}
