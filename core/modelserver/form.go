package modelserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// bytesPerToken is about the number of bytes of one token of a text. It is exact for tokens.Packed.
const bytesPerToken = 4

// write sets the content to a text of a form, with nothing after it, as far as the client sees it in limit tokens.
// t.Target is the approximate length in tokens; 0 is DefaultOutput.
func (r *Reader) write(c *content, q *Request, form *structured.Grammar, t *structured.Text, limit int) {
	t.Target = cmp.Or(t.Target, DefaultOutput)
	t.Words, t.Spend = r.Vocabulary, q.work.spend
	t.Target *= bytesPerToken
	if t.Most = bytesPerToken * (limit + 1); !packed(r.Tokenizer) {
		// Tokens differ in length, and the last tokens of a truncated text may differ from those of the whole text.
		t.Most = 16*limit + 64
	}
	text := form.Write(nil, t)
	if q.work.spend(pieceWork * len(text)) {
		c.given = r.piecesOf(string(text))
	}
	said := 0
	for i := range c.given {
		said += len(c.given[i].text)
	}
	if said > len(text) {
		c.given[0].text = strings.TrimPrefix(c.given[0].text, " ") // SentencePiece adds this space
	}
	if c.once = true; len(c.given) == 0 {
		c.given = []piece{{}} // the end of an empty text counts as a token too
	}
}

func packed(t tokens.Tokenizer) bool {
	_, ok := t.(tokens.Packed)
	return ok
}

// structuredOutputs are vLLM's StructuredOutputsParams (vllm/sampling_params.py). Its white space options have no
// effect: generated texts have no white space except one blank after commas and colons.
type structuredOutputs struct {
	JSON       json.RawMessage `json:"json,omitempty"`
	Regex      *string         `json:"regex,omitempty"`
	Choice     *[]string       `json:"choice,omitempty"`
	Grammar    *string         `json:"grammar,omitempty"`
	JSONObject *bool           `json:"json_object,omitempty"`
	Tag        json.RawMessage `json:"structural_tag,omitempty"`
}

// given reports whether an optional field has a value.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// formOf returns the form that a request's answers must have; nil allows any words. Refusals are vLLM's, in vLLM's
// words.
func (r *Reader) formOf(q *Request, p *openai.Sampling) (*structured.Grammar, *openai.Error) {
	if p.Guided == nil && !given(p.StructuredOutputs) && !given(p.ResponseFormat) {
		return nil, nil
	}
	s := new(structuredOutputs)
	param, bad := s.read(p)
	if bad != nil || param == "" {
		return nil, bad
	}
	form, bad := r.compile(q, s, param)
	if tooMuch := q.work.tooMuch(); tooMuch != nil {
		bad = tooMuch
	}
	return form, bad
}

// read collects a request's constraints on its answers, and returns the name of the field that contains them; "" is
// none. response_format replaces a constraint of the same kind in structured_outputs, as in vLLM's
// structured_outputs_from_response_format.
func (s *structuredOutputs) read(p *openai.Sampling) (param string, bad *openai.Error) {
	if given(p.StructuredOutputs) {
		param = "structured_outputs"
		if bad := openai.Decode(p.StructuredOutputs, s); bad != nil {
			bad.Message = param + ": " + bad.Message
			bad.Param = param
			return "", bad
		}
		var tag string
		if given(s.Tag) {
			if json.Unmarshal(s.Tag, &tag) != nil {
				return "", openai.Errorf(400, param,
					"Invalid structured_outputs structural_tag specification. Expected a string with JSON.")
			}
			s.Tag = json.RawMessage(tag)
			if tag == "" {
				s.Tag = json.RawMessage(" ")
			}
		}
	}
	if g := p.Guided; g != nil {
		for _, f := range []struct {
			name string
			raw  json.RawMessage
			into any
			want string
		}{
			{"guided_json", g.JSON, &s.JSON, "a schema"}, {"guided_regex", g.Regex, &s.Regex, "a string"},
			{"guided_choice", g.Choice, &s.Choice, "a list of strings"},
			{"guided_grammar", g.Grammar, &s.Grammar, "a string"},
		} {
			if !given(f.raw) {
				continue
			}
			if param = f.name; json.Unmarshal(f.raw, f.into) != nil {
				return "", openai.Invalidf(param, "%s: expected %s.", param, f.want)
			}
		}
	}
	if !given(p.ResponseFormat) {
		return param, nil
	}
	asks, bad := s.format(p.ResponseFormat)
	if asks {
		param = "response_format"
	}
	return param, bad
}

// format reads response_format, and reports whether it constrains the answers.
func (s *structuredOutputs) format(raw json.RawMessage) (asks bool, bad *openai.Error) {
	const param = "response_format"
	var f struct {
		Type   string `json:"type"`
		Schema *struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if bad := openai.Decode(raw, &f); bad != nil {
		bad.Param, bad.Message = param, param+": "+bad.Message
		return false, bad
	}
	switch f.Type {
	case "text":
		return false, nil
	case "json_object":
		yes := true
		s.JSONObject = &yes
		return true, nil
	case "json_schema":
		switch {
		case f.Schema == nil:
			return false, openai.Errorf(400, param,
				"When response_format type is 'json_schema', the 'json_schema' field must be provided.")
		case f.Schema.Name == "":
			return false, openai.Invalidf(param+".json_schema.name",
				"response_format.json_schema.name: field required.")
		}
		s.JSON = f.Schema.Schema
		return true, nil
	case "structural_tag":
		s.Tag = raw
		return true, nil
	}
	return false, openai.Invalidf(param+".type",
		"response_format.type: expected text, json_object, json_schema or structural_tag, got %q.", f.Type)
}

// kinds returns the names of the constraints that are set.
func (s *structuredOutputs) kinds() []string {
	var out []string
	for _, k := range []struct {
		name  string
		there bool
	}{{"json", given(s.JSON)}, {"regex", s.Regex != nil}, {"choice", s.Choice != nil}, {"grammar", s.Grammar != nil},
		{"json_object", s.JSONObject != nil}, {"structural_tag", given(s.Tag)}} {
		if k.there {
			out = append(out, k.name)
		}
	}
	return out
}

var tooDeep = fmt.Sprintf("The JSON schema is nested too deeply: objects and arrays may nest at most %d levels",
	maxNesting)

// maxNesting is the limit on nested objects and arrays in a schema. moreTagNesting is the number of further levels that
// a structural tag may have (vllm/sampling_params.py).
const (
	maxNesting     = 64
	moreTagNesting = 16
)

// nestedDeeper reports whether a JSON text nests objects and arrays deeper than a limit.
func nestedDeeper(raw []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// compile compiles the constraints of a request. Errors name param.
func (r *Reader) compile(q *Request, s *structuredOutputs, param string) (*structured.Grammar, *openai.Error) {
	refuse := func(format string, args ...any) (*structured.Grammar, *openai.Error) {
		return nil, openai.Errorf(400, param, format, args...)
	}
	switch kinds := s.kinds(); {
	case len(kinds) == 0:
		return refuse("You must use one kind of structured outputs constraint but none are specified.")
	case len(kinds) > 1 && !slices.ContainsFunc(kinds,
		func(k string) bool { return k != "json" && k != "regex" && k != "choice" }):
		return refuse("You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').")
	case len(kinds) > 1:
		return refuse("You can only use one kind of structured outputs constraint but multiple are specified: %s.",
			strings.Join(kinds, ", "))
	}
	var form *structured.Grammar
	var err error
	switch {
	case s.Regex != nil:
		if strings.Contains(*s.Regex, "\x00") {
			return refuse("structured_outputs.regex must not contain a NUL character ('\\x00')")
		}
		form, err = r.formIn(q, regexForm, *s.Regex, structured.Regex)
	case s.Choice != nil:
		if len(*s.Choice) == 0 {
			return refuse("Choice '[]' cannot be an empty list")
		}
		form, err = structured.Choice(*s.Choice, q.work.spend)
	case s.Grammar != nil:
		if strings.TrimSpace(*s.Grammar) == "" {
			return refuse("structured_outputs.grammar cannot be an empty string")
		}
		form, err = r.formIn(q, grammarForm, *s.Grammar, structured.Parse)
	case s.JSONObject != nil:
		if !*s.JSONObject {
			return refuse("structured_outputs.json_object must be True if set; omit structured_outputs to disable " +
				"structured outputs")
		}
		form, err = structured.Object(q.work.spend)
	case given(s.Tag):
		if nestedDeeper(s.Tag, maxNesting+moreTagNesting) {
			return refuse("%s", tooDeep)
		}
		if form, err = r.formIn(q, tagForm, string(s.Tag), r.compileTag); err != nil {
			return refuse("Invalid %s structural_tag specification. %v.", param, err)
		}
	default:
		var text string
		schema := s.JSON
		if schema[0] == '"' && json.Unmarshal(schema, &text) == nil {
			if schema = json.RawMessage(text); strings.TrimSpace(text) == "" {
				return refuse("structured_outputs.json cannot be an empty string")
			} else if !json.Valid(schema) {
				return refuse("Invalid JSON grammar specification.")
			}
		}
		if nestedDeeper(schema, maxNesting) {
			return refuse("%s", tooDeep)
		}
		form, err = r.formIn(q, schemaForm, string(schema), compileSchema)
	}
	if err != nil {
		return refuse("Grammar error: %v", err)
	}
	return form, nil
}
