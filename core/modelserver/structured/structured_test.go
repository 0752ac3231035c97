package structured

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

var words = tokens.NewVocabulary(tokens.Packed{})

// budget is the work that a test lets be done.
func budget() func(int) bool {
	left := 64 << 20
	return func(n int) bool { left -= n; return left > 0 }
}

// say writes one text of a form.
func say(g *Grammar, seed uint64, target int) string {
	return string(g.Write(nil, &Text{Draw: machine.NewDraw(seed, "test", "text", 0), Words: words, Free: true,
		Target: target, Most: 1 << 20, Spend: budget()}))
}

// schemas draws a JSON schema. Names of definitions that it may refer to are a to c.
func schemas(t *rapid.T, depth int) map[string]any {
	kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "format", "ref",
		"object", "array", "anyOf", "types", "tuple", "map", "allOf"}
	if depth > 3 {
		kinds = kinds[:9]
	}
	some := func(name string) bool { return rapid.Bool().Draw(t, name) }
	small := rapid.IntRange(0, 5)
	s := map[string]any{}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "enum":
		s["enum"] = []any{"a \"b\"", 1, nil, true, 2.5, []any{1, "x"},
			map[string]any{"k": "v"}}[:1+small.Draw(t, "enum")]
	case "const":
		s["const"] = rapid.SampledFrom([]any{"x\ny", 7, nil, false}).Draw(t, "const")
	case "pattern":
		s["type"], s["pattern"] = "string",
			rapid.SampledFrom([]string{`^[a-z]{2,5}$`, `^\d{3}-\d{4}$`, `^(yes|no)"\\$`, `^[^"]+$`,
				`^\w+@\w+\.com$`}).Draw(t, "pattern")
	case "format":
		s["type"], s["format"] = "string",
			rapid.SampledFrom([]string{"date", "time", "date-time", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
				"json-pointer", "duration", "uri-reference", "uri-template", "relative-json-pointer"}).Draw(t, "format")
	case "ref":
		s["$ref"] = "#/$defs/" + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "ref")
	case "anyOf":
		s["anyOf"] = []any{schemas(t, depth+1), schemas(t, depth+1)}
	case "types":
		s["type"] = []any{"string", "null", "integer"}
		s["maxLength"] = 4 + small.Draw(t, "maxLength")
	case "allOf":
		s["allOf"] = []any{map[string]any{"type": "object", "properties": map[string]any{"left": schemas(t, depth+1)},
			"required": []any{"left"}},
			map[string]any{"type": "object", "properties": map[string]any{"right": schemas(t, depth+1)}}}
	case "tuple":
		s["type"], s["prefixItems"], s["items"] = "array", []any{schemas(t, depth+1), schemas(t, depth+1)}, false
	case "map":
		s["type"], s["additionalProperties"] = "object", schemas(t, depth+1)
		if some("names") {
			s["propertyNames"] = map[string]any{"pattern": "^[a-z]+_[0-9]$"}
		}
		s["minProperties"] = small.Draw(t, "minProperties")
	case "object":
		props, required := map[string]any{}, []any{}
		for i := range small.Draw(t, "properties") {
			name := fmt.Sprint("p", i)
			props[name] = schemas(t, depth+1)
			if some("required") {
				required = append(required, name)
			}
		}
		s["type"], s["properties"], s["required"] = kind, props, required
		if some("closed") {
			s["additionalProperties"] = false
		}
	case "array":
		s["type"], s["items"] = kind, schemas(t, depth+1)
		least := small.Draw(t, "minItems")
		s["minItems"], s["maxItems"] = least, least+small.Draw(t, "more")
	case "string":
		s["type"] = kind
		least := small.Draw(t, "minLength")
		if s["minLength"] = least; some("bounded") {
			s["maxLength"] = least + small.Draw(t, "more")
		}
	case "integer":
		s["type"] = kind
		low := rapid.IntRange(-1000, 1000).Draw(t, "minimum")
		if s["minimum"] = low; some("bounded") {
			s["maximum"] = low + 20
		}
		if some("stepped") {
			s["multipleOf"] = 1 + small.Draw(t, "multipleOf")
		}
	case "number":
		s["type"] = kind
		low := rapid.Float64Range(-100, 100).Draw(t, "exclusiveMinimum")
		s["exclusiveMinimum"], s["exclusiveMaximum"] = low,
			low+rapid.SampledFrom([]float64{1e-6, 0.5, 3, 1e9}).Draw(t, "width")
		if some("stepped") {
			delete(s, "exclusiveMaximum")
			s["multipleOf"] = rapid.SampledFrom([]float64{0.01, 0.25, 3}).Draw(t, "multipleOf")
		}
	default:
		s["type"] = kind
	}
	return s
}

// What is made of a schema fits it, as another program reads it, and is the same
// each time.
func TestSchemasFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := schemas(t, 0)
		// Definitions that refer to themselves, and come to an end.
		s["$defs"] = map[string]any{
			"a": map[string]any{"type": "object",
				"properties": map[string]any{"value": map[string]any{"type": "integer"},
					"next": map[string]any{"$ref": "#/$defs/a"}}, "required": []any{"value"}},
			"b": map[string]any{"anyOf": []any{
				map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/b"}},
				map[string]any{"type": "boolean"}}},
			"c": map[string]any{"anyOf": []any{map[string]any{"$ref": "#/$defs/a"}, map[string]any{"type": "null"}}},
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Schema(raw, budget())
		if err != nil {
			if strings.HasPrefix(err.Error(), "Unsatisfiable") {
				t.Skip(err)
			}
			t.Fatalf("%s: %v", raw, err)
		}
		seed, target := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 2000).Draw(t, "target")
		text := say(g, seed, target)
		if !fitting(t, raw, text) || text != say(g, seed, target) {
			t.Fatalf("%.2000s\nis no %s", text, raw)
		}
		for range 3 {
			cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
			whole := Close([]byte(text[:cut]))
			if !json.Valid(whole) {
				t.Fatalf("%q, closed, is %q", text[:cut], whole)
			}
			if cut == len(text) && string(whole) != text {
				t.Fatalf("%q, closed, is %q", text, whole)
			}
		}
	})
}

func fitting(t interface{ Fatal(...any) }, schema []byte, text string) bool {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("s.json", s); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	return err == nil && compiled.Validate(v) == nil
}

// Expressions draws a regular expression that Go reads, too.
func expressions(t *rapid.T, depth int) string {
	kinds := []string{"a", `\d`, `\w`, `[x-z_]`, `[^a-z]`, `.`, `\.`, "é", `\n`, `\x41`, `\u0042`, `[\s\-]`, "group",
		"either", "repeat", "sequence"}
	if depth > 3 {
		kinds = kinds[:12]
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "group":
		return "(" + rapid.SampledFrom([]string{"", "?:", "?<name>"}).Draw(t, "modifier") + expressions(t, depth+1) +
			")"
	case "either":
		return "(?:" + expressions(t, depth+1) + "|" + expressions(t, depth+1) + ")"
	case "repeat":
		return "(?:" + expressions(t, depth+1) + ")" +
			rapid.SampledFrom([]string{"*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "{0,4000}"}).Draw(t, "times")
	case "sequence":
		return expressions(t, depth+1) + expressions(t, depth+1)
	default:
		return kind
	}
}

var javaScript = strings.NewReplacer(`\u0042`, "B", "{0,4000}", "*", "?<name>", "")

func TestExpressionsMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := expressions(t, 0)
		g, err := Regex("^"+pattern+"$", budget())
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		text := say(g, rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 400).Draw(t, "target"))
		if !regexp.MustCompile(`(?s)^(?:` + javaScript.Replace(pattern) + `)$`).MatchString(text) {
			t.Fatalf("%q does not match %s", text, pattern)
		}
	})
}

// part is a part of a grammar, for the recogniser below.
type part struct {
	op    string // text, chars, rule, sequence, either, or how often: * + ? {1,2}
	text  string
	parts []*part
}

// parts draws one. Rules r0 to r3 may be named, left of all else too.
func parts(t *rapid.T, depth int) *part {
	ops := []string{"text", "text", "chars", "rule", "sequence", "either", "*", "+", "?", "{1,2}"}
	if depth > 3 {
		ops = ops[:4]
	}
	p := &part{op: rapid.SampledFrom(ops).Draw(t, "op")}
	switch p.op {
	case "text":
		p.text = rapid.SampledFrom([]string{"a", "bc", "é", "x\ny", `"q"`, "", `\`}).Draw(t, "text")
	case "chars":
		p.text = rapid.SampledFrom([]string{"[a-c]", "[0-9x]", "[^a-z]"}).Draw(t, "chars")
	case "rule":
		p.text = rapid.SampledFrom([]string{"r0", "r1", "r2", "r3"}).Draw(t, "rule")
	case "sequence", "either":
		p.parts = []*part{parts(t, depth+1), parts(t, depth+1)}
	default:
		p.parts = []*part{parts(t, depth+1)}
	}
	return p
}

// print writes it in a dialect.
func (p *part) print(d dialect) string {
	switch p.op {
	case "text":
		return quote(p.text)
	case "chars":
		if d == lark {
			return "/" + p.text + "/"
		}
		return p.text
	case "rule":
		return p.text
	case "sequence":
		return p.parts[0].print(d) + " " + p.parts[1].print(d)
	case "either":
		return "(" + p.parts[0].print(d) + " | " + p.parts[1].print(d) + ")"
	}
	return "(" + p.parts[0].print(d) + ")" + p.op
}

// recogniser finds where parts of a text may end, by rules that may refer to
// themselves anywhere: it goes over them until it learns nothing more.
type recogniser struct {
	text    string
	rules   map[string]*part
	ends    map[string]map[int]bool // of a rule from a place
	looked  map[string]bool         // in this pass
	learned bool
}

func (r *recogniser) matches(root *part) bool {
	for r.learned = true; r.learned; {
		r.learned, r.looked = false, map[string]bool{}
		if r.from(root, 0)[len(r.text)] {
			return true
		}
	}
	return false
}

func (r *recogniser) from(p *part, at int) map[int]bool {
	out := map[int]bool{}
	each := func(p *part, starts map[int]bool) map[int]bool {
		ends := map[int]bool{}
		for s := range starts {
			for e := range r.from(p, s) {
				ends[e] = true
			}
		}
		return ends
	}
	switch p.op {
	case "text":
		if strings.HasPrefix(r.text[at:], p.text) {
			out[at+len(p.text)] = true
		}
	case "chars":
		if m := regexp.MustCompile("^(?s)" + p.text).FindString(r.text[at:]); m != "" {
			out[at+len(m)] = true
		}
	case "sequence":
		return each(p.parts[1], r.from(p.parts[0], at))
	case "either":
		for _, k := range p.parts {
			for e := range r.from(k, at) {
				out[e] = true
			}
		}
	case "rule":
		key := fmt.Sprint(p.text, " ", at)
		if r.ends[key] == nil {
			r.ends[key] = map[int]bool{}
		}
		if !r.looked[key] {
			r.looked[key] = true
			for e := range r.from(r.rules[p.text], at) {
				r.learned = r.learned || !r.ends[key][e]
				r.ends[key][e] = true
			}
		}
		return maps.Clone(r.ends[key])
	default:
		times := map[string][2]int{"*": {0, 1 << 20}, "+": {1, 1 << 20}, "?": {0, 1}, "{1,2}": {1, 2}}[p.op]
		now := map[int]bool{at: true}
		for i := 0; i <= times[1] && len(now) > 0; i++ {
			before := len(out)
			if i >= times[0] {
				for e := range now {
					out[e] = true
				}
				if len(out) == before {
					break
				}
			}
			now = each(p.parts[0], now)
		}
	}
	return out
}

// What is made of a grammar is one of its texts, in both ways of writing it.
func TestGrammarsParse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := map[string]*part{}
		var asEBNF, asLark strings.Builder
		asEBNF.WriteString("# a comment\nroot ::= r0\n")
		asLark.WriteString("// a comment\nstart: r0\n")
		for i := range 4 {
			name := fmt.Sprint("r", i)
			// One way out of each, so that there is a text.
			rules[name] = &part{op: "either", parts: []*part{parts(t, 0), {op: "text", text: fmt.Sprint(i)}}}
			fmt.Fprintf(&asEBNF, "%s ::= %s |\n   %s\n", name, rules[name].parts[0].print(ebnf),
				rules[name].parts[1].print(ebnf))
			fmt.Fprintf(&asLark, "?%s: %s -> one\n   | %s\n", name, rules[name].parts[0].print(lark),
				rules[name].parts[1].print(lark))
		}
		seed, target := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 40).Draw(t, "target")
		for _, source := range []string{asEBNF.String(), asLark.String()} {
			g, err := Parse(source, budget())
			if err != nil {
				t.Fatalf("%s\n%v", source, err)
			}
			text := say(g, seed, target)
			if len(text) > 200 {
				continue // it takes the recogniser too long
			}
			r := &recogniser{text: text, rules: rules, ends: map[string]map[int]bool{}}
			if !r.matches(&part{op: "rule", text: "r0"}) {
				t.Fatalf("%q is no text of\n%s", text, source)
			}
		}
	})
}
