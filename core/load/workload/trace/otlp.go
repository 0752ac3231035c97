package trace

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/windtunnel/windtunnel/core/wire/protofields"
)

// spanBlock is the number of tokens in which OTLP's requests share beginnings.
const spanBlock = 64

// maxSpanBytes limits a file of spans, in bytes.
const maxSpanBytes = 1 << 30

// The attributes of spans: OpenTelemetry's semantic conventions for generative AI, and vLLM's older names.
var (
	spanInput        = []string{"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"}
	spanOutput       = []string{"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"}
	spanCached       = []string{"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens"}
	spanRequest      = []string{"gen_ai.request.id", "gen_ai.response.id"}
	spanModel        = []string{"gen_ai.request.model", "gen_ai.response.model"}
	spanConversation = []string{"gen_ai.conversation.id"}
	spanServer       = []string{"server.address", "service.instance.id"}
)

// span is a span with the attributes of a model's call.
type span struct {
	trace, id, parent string
	at                float64 // its start, in seconds
	failed            bool
	attributes        map[string]string // text and numbers
}

func (s *span) text(names []string) string {
	for _, name := range names {
		if v := s.attributes[name]; v != "" {
			return v
		}
	}
	return ""
}

// tokens returns a number of tokens, 0 if the span has none. One that is no number is an error at check.
func (s *span) tokens(names []string) int {
	v := s.text(names)
	if v == "" {
		return 0
	}
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return n
	}
	return maxTokens + 1
}

// call is a request to a model: one span, or several that describe the same request.
type call struct {
	row
	cached                       int
	model, conversation, address string
}

// calls are the requests of a file of spans.
type calls struct {
	block           int
	list            []*call
	spans, answered int // spans in the file, and calls whose spans say how many tokens they found in a cache
}

// spans reads OTLP's spans: JSON, whole or one message on each line, or protobuf, one message or several with their
// lengths before them, as the file exporter of OpenTelemetry's collector writes them.
func spans(from io.Reader, o *Options) (rows []row, assumed []string, err error) {
	limited := &io.LimitedReader{R: from, N: maxSpanBytes + 1}
	in := bufio.NewReaderSize(limited, 64<<10)
	var all []*span
	add := func(list []*span) error {
		if all = append(all, list...); len(all) > o.Most {
			return fmt.Errorf("more than %d spans; expected a shorter time", o.Most)
		}
		return nil
	}
	switch first, _ := in.Peek(5); {
	case len(first) > 1 && first[0] == protowireResource && !strings.ContainsRune("{ \t\r\n", rune(first[1])):
		err = protobufSpans(in, false, add) // and no JSON behind an empty line
	case len(first) == 5 && first[0] == 0 && first[4] == protowireResource:
		err = protobufSpans(in, true, add)
	default:
		err = jsonSpans(in, add)
	}
	if limited.N <= 0 {
		return nil, nil, fmt.Errorf("longer than %d bytes; expected a shorter time", maxSpanBytes)
	}
	if err != nil {
		return nil, nil, err
	}
	c := calls{block: cmp.Or(o.Block, spanBlock), spans: len(all)}
	if err := c.collect(all); err != nil {
		return nil, nil, err
	}
	return c.rows(), c.assumed(), nil
}

// collect finds the calls among spans. A client, a gateway and a model server may each describe the same request, and a
// prefill and a decode server one leg of it: the outermost span with tokens counts, at its time.
func (c *calls) collect(all []*span) error {
	byID := map[string]*span{}
	for _, s := range all {
		byID[s.trace+s.id] = s
	}
	of := map[string]int{} // index in list, by the key of the outermost span
	slices.SortStableFunc(all, func(a, b *span) int { return cmp.Compare(a.at, b.at) })
	for _, s := range all {
		if s.text(spanInput) == "" {
			continue
		}
		outermost := s
		for up, depth := byID[s.trace+s.parent], 0; up != nil && depth < 64; depth++ {
			if up.text(spanInput) != "" {
				outermost = up
			}
			up = byID[up.trace+up.parent]
		}
		key := outermost.trace + cmp.Or(outermost.text(spanRequest), outermost.id)
		n, known := of[key]
		if !known {
			n = len(c.list)
			of[key] = n
			c.list = append(c.list, &call{row: row{at: outermost.at}})
		}
		x := c.list[n]
		x.at = min(x.at, outermost.at)
		x.input, x.cached = max(x.input, s.tokens(spanInput)), max(x.cached, s.tokens(spanCached))
		if !outermost.failed {
			x.output = max(x.output, s.tokens(spanOutput))
		}
		if s.text(spanCached) != "" {
			c.answered++
		}
		x.model = cmp.Or(x.model, s.text(spanModel))
		x.conversation = cmp.Or(x.conversation, s.text(spanConversation))
		x.address = cmp.Or(s.text(spanServer), x.address) // the innermost is the model server's
		if err := x.check(); err != nil {
			return fmt.Errorf("span %x of trace %x: %w", s.id, s.trace, err)
		}
	}
	if len(c.list) == 0 {
		return fmt.Errorf("none of its %d spans has %s; expected the spans of a model server, or of a client, with "+
			"OpenTelemetry's attributes for generative AI", c.spans, spanInput[0])
	}
	return nil
}

// rows returns the requests. A prompt that found tokens in a cache begins like an earlier one.
func (c *calls) rows() (out []row) {
	slices.SortStableFunc(c.list, func(a, b *call) int { return before(a.row, b.row) })
	type donor struct{ conversation, model string }
	last := map[donor][]uint64{}
	next := uint64(0)
	for _, x := range c.list {
		if c.answered > 0 {
			x.block = c.block
			from := last[donor{model: x.model}]
			if own := last[donor{x.conversation, x.model}]; x.conversation != "" && own != nil {
				from = own
			}
			n := (x.input + c.block - 1) / c.block
			x.hashes = append(make([]uint64, 0, n), from[:min(x.cached/c.block, len(from), n)]...)
			for len(x.hashes) < n {
				next++
				x.hashes = append(x.hashes, next)
			}
			last[donor{model: x.model}] = x.hashes
			if x.conversation != "" {
				last[donor{x.conversation, x.model}] = x.hashes
			}
		}
		out = append(out, x.row)
	}
	return out
}

func (c *calls) assumed() []string {
	models, servers := map[string]bool{}, map[string]bool{}
	for _, x := range c.list {
		models[x.model], servers[x.address] = true, true
	}
	delete(models, "")
	delete(servers, "")
	out := []string{allDifferent}
	if c.answered > 0 {
		out[0] = fmt.Sprintf("a span says how many tokens of a prompt were cached, but not which prompt "+
			"they are from: it begins like the latest earlier prompt of its conversation, or of its model, in whole "+
			"%d tokens", c.block)
	}
	return append(out, askedOf(models, servers)...)
}

// traces is OTLP's message in JSON.
type traces struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes attributes }
		ScopeSpans []struct {
			Spans []struct {
				TraceID, SpanID, ParentSpanID string
				StartTimeUnixNano             json.Number
				Attributes                    attributes
				Status                        struct{ Code any }
			}
		}
	}
}

type attributes []struct {
	Key   string
	Value struct {
		StringValue *string
		IntValue    *json.Number
		DoubleValue *json.Number
	}
}

func (list attributes) into(out map[string]string) {
	for _, a := range list {
		switch v := a.Value; {
		case v.StringValue != nil:
			out[a.Key] = *v.StringValue
		case v.IntValue != nil:
			out[a.Key] = v.IntValue.String()
		case v.DoubleValue != nil:
			out[a.Key] = v.DoubleValue.String()
		}
	}
}

func jsonSpans(from io.Reader, add func([]*span) error) error {
	in := json.NewDecoder(from)
	for message := 1; ; message++ {
		var m traces
		if err := in.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("message %d: %w; expected an object with resourceSpans, as OTLP has", message, err)
		}
		for _, r := range m.ResourceSpans {
			var list []*span
			for _, scope := range r.ScopeSpans {
				for _, s := range scope.Spans {
					at, err := strconv.ParseFloat(s.StartTimeUnixNano.String(), 64)
					if err != nil {
						return fmt.Errorf("message %d: startTimeUnixNano: found %.80q; expected nanoseconds", message,
							s.StartTimeUnixNano)
					}
					x := &span{trace: s.TraceID, id: s.SpanID, parent: s.ParentSpanID, at: at / 1e9,
						failed: s.Status.Code == 2.0 || s.Status.Code == "STATUS_CODE_ERROR"}
					x.attributes = map[string]string{}
					r.Resource.Attributes.into(x.attributes)
					s.Attributes.into(x.attributes)
					list = append(list, x)
				}
			}
			if err := add(list); err != nil {
				return err
			}
		}
	}
}

// protowireResource is the tag of resource_spans, with which a message begins.
const protowireResource = 1<<3 | byte(protowire.BytesType)

func protobufSpans(in io.Reader, lengths bool, add func([]*span) error) error {
	for message := 1; ; message++ {
		from, length := in, int64(-1)
		if lengths {
			var size [4]byte
			if _, err := io.ReadFull(in, size[:]); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("message %d: %w; expected its length in 4 bytes", message, err)
			}
			length = int64(binary.BigEndian.Uint32(size[:]))
			from = io.LimitReader(in, length)
		}
		data, err := io.ReadAll(from)
		if err == nil && lengths && int64(len(data)) < length {
			err = fmt.Errorf("found %d bytes of %d", len(data), length)
		}
		var list []*span
		if err == nil {
			list, err = messageSpans(data)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w; expected OTLP's TracesData in protobuf", message, err)
		}
		if err := add(list); err != nil || !lengths {
			return err
		}
	}
}

// messageSpans reads a TracesData or ExportTraceServiceRequest.
func messageSpans(data []byte) (out []*span, err error) {
	err = protofields.Each(data, func(n protowire.Number, _ protowire.Type, _ uint64, resource []byte) error {
		if n != 1 {
			return nil
		}
		shared := map[string]string{}
		var scopes [][]byte
		err := protofields.Each(resource, func(n protowire.Number, _ protowire.Type, _ uint64, v []byte) error {
			switch n {
			case 1:
				return protobufAttributes(v, 1, shared)
			case 2:
				scopes = append(scopes, v)
			}
			return nil
		})
		readSpan := func(n protowire.Number, _ protowire.Type, _ uint64, v []byte) error {
			if n != 2 {
				return nil
			}
			s, err := protobufSpan(v, shared)
			out = append(out, s)
			return err
		}
		for _, scope := range scopes {
			err = cmp.Or(err, protofields.Each(scope, readSpan))
		}
		return err
	})
	return out, err
}

func protobufSpan(data []byte, shared map[string]string) (s *span, err error) {
	s = &span{attributes: maps.Clone(shared)}
	err = protofields.Each(data, func(n protowire.Number, _ protowire.Type, x uint64, v []byte) error {
		switch n {
		case 1:
			s.trace = string(v)
		case 2:
			s.id = string(v)
		case 4:
			s.parent = string(v)
		case 7:
			s.at = float64(x) / 1e9
		case 15:
			return protofields.Each(v, func(n protowire.Number, _ protowire.Type, x uint64, _ []byte) error {
				s.failed = s.failed || n == 3 && x == 2
				return nil
			})
		}
		return nil
	})
	return s, cmp.Or(err, protobufAttributes(data, 9, s.attributes))
}

// protobufAttributes reads the KeyValues of a message's field.
func protobufAttributes(data []byte, field protowire.Number, out map[string]string) error {
	return protofields.Each(data, func(n protowire.Number, _ protowire.Type, _ uint64, v []byte) error {
		if n != field {
			return nil
		}
		key, value := "", ""
		err := protofields.Each(v, func(n protowire.Number, _ protowire.Type, _ uint64, v []byte) error {
			switch n {
			case 1:
				key = string(v)
			case 2:
				return protofields.Each(v, func(n protowire.Number, _ protowire.Type, x uint64, v []byte) error {
					switch n {
					case 1:
						value = string(v)
					case 3:
						value = strconv.FormatInt(int64(x), 10) //nolint:gosec // protobuf's int64
					case 4:
						value = strconv.FormatFloat(math.Float64frombits(x), 'f', -1, 64)
					}
					return nil
				})
			}
			return nil
		})
		out[key] = value
		return err
	})
}
