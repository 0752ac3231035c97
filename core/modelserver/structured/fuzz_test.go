package structured

import (
	"encoding/json"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Whatever a form is, it is compiled or refused with a reason, and what is written
// of it ends; of a schema it is JSON, and so is every cut of it once it is closed.
func FuzzForms(f *testing.F) {
	for i, text := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a","b"],` +
			`"$defs":{"x":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},"patternProperties":{"^x":{}}}`,
		`^(?:a|b)*[^\d\u00e9]{2,3}?\p{L}(?i)x$`,
		"root ::= a | \"x\\x41\" [^a-z\\-]{2,} # comment\na ::= (root \"y\")?",
		"start: \"a\"i | /[a-z]+/s ~ 2..3 -> x\n | [B] %json {\"type\":\"integer\"}\nB: \"a\"..\"z\"\n%import common " +
			"(INT, WS)\n%ignore WS",
		`{"type":"number","exclusiveMinimum":1e-300,"multipleOf":0.1}`,
		`{"allOf":[{"$ref":"#"},{"type":["string","integer"],"minLength":3,"maximum":7}]}`,
		`{"type":"array","prefixItems":[{"const":"é\\u0000"}],"minItems":3,"items":{"type":"string",` +
			`"format":"date-time"}}`,
	} {
		f.Add(i, text, uint64(i))
	}
	f.Add(2, "root ::= []", uint64(0))
	f.Add(4, `{"format":{"type":"triggered_tags","triggers":["<"],"tags":[{"begin":"<a>",`+
		`"content":{"type":"json_schema","style":"qwen_xml","json_schema":{"properties":{"a":{"enum":[1,"b"]}}}},`+
		`"end":["x",""]}],"excludes":["z"]}}`, uint64(0))
	f.Add(4, `{"format":{"elements":[{"type":"any_text","excludes":["a"]},{"type":"dispatch","rules":[["b",`+
		`{"type":"star","content":{"value":"c"}}]],"loop":false},{"type":"token","token":3}],"type":"sequence"}}`,
		uint64(0))
	f.Add(4, `{"structures":[{"begin":"<f>","schema":{"$ref":"#"},"end":""}],"triggers":["<f"]}`, uint64(0))
	f.Add(4, `{"format":{"type":"json_schema","style":"cohere_xml",`+
		`"json_schema":{"properties":{"a":{"anyOf":[{"$ref":"#"},{"type":["null","array"]}]},"b":{"items":{"enum":[1,`+
		`{"x":[2]}]}}},"additionalProperties":{"type":"string"},"minProperties":2}}}`, uint64(0))
	f.Add(4, `{"format":{"type":"json_schema","style":"minimax_m3_xml","json_schema":{"type":"object",`+
		`"properties":{"a":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["a"]}}}`, uint64(0))
	f.Fuzz(func(t *testing.T, kind int, text string, seed uint64) {
		left := 4 << 20
		spend := func(n int) bool { left -= n; return left > 0 }
		var g *Grammar
		var err error
		schema := false
		switch uint(kind) % 5 {
		case 1:
			g, err = Regex(text, spend)
		case 2, 3:
			g, err = Parse(text, spend)
		case 4:
			g, err = Tag([]byte(text), tokenText, spend)
		default:
			schema = true
			if !json.Valid([]byte(text)) {
				return
			}
			Arguments([]byte(text), spend)
			g, err = Schema([]byte(text), spend)
		}
		if err != nil {
			if err.Error() == "" {
				t.Fatal("refused without a reason")
			}
			return
		}
		const most = 4096
		said := g.Write(nil, &Text{Draw: machine.NewDraw(seed, "test", "text", 0), Words: words, Free: true,
			Target: 100, Most: most, Spend: spend})
		if !schema || left <= 0 {
			return
		}
		if len(said) < most && g.root.min < endless && !json.Valid(said) {
			t.Fatalf("%q is no JSON", said)
		}
		if whole := Close(said[:seed%uint64(len(said)+1)]); !json.Valid(whole) {
			t.Fatalf("%q", whole)
		}
	})
}
