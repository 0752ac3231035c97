package modelserver

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// filled repeats a piece, which may have a %d, until before, the pieces and behind are
// about n bytes.
func filled(n int, before, piece, behind string) string {
	var b strings.Builder
	b.WriteString(before)
	first, last, numbered := strings.Cut(piece, "%d")
	for i := 0; b.Len()+len(piece)+len(behind)+8 < n; i++ {
		if b.WriteString(first); numbered {
			b.WriteString(strconv.Itoa(i))
		}
		b.WriteString(last)
	}
	return b.String() + behind
}

// hostile calls play with forms of about n bytes each that a reader might take more than so many
// steps for, by the field that they stand in and what they are.
func hostile(n int, play func(name, outputs string)) {
	add := func(field, name string, raw any) {
		b, err := json.Marshal(raw)
		if err != nil {
			panic(err)
		}
		play(field+": "+name, `{"`+field+`":`+string(b)+`}`)
	}
	half := n / 2
	for name, pattern := range map[string]string{
		"plain":           strings.Repeat("a", n),
		"alternatives":    filled(n, "", "a|", "b"),
		"groups":          filled(n, "", "(a)", ""),
		"repetitions":     filled(n, "", "a{1,2}", ""),
		"braces":          filled(n, "", "{a", ""),
		"brackets":        filled(n, "", "[ab]", ""),
		"one bracket":     filled(n, "[", "ab", "]"),
		"letters":         filled(n, "", `\pL`, ""),
		"letters in one":  filled(n, "[", `\pL`, "]"),
		"unfinished":      filled(n, "[", `\p{`, "]"),
		"folded":          filled(n, "(?i)", "[A-𞥃]", ""),
		"wide":            filled(n, "(?i)[", "A-𞥃", "]"),
		"names":           filled(n, "", "(?<a>b)", ""),
		"flags":           filled(n, "", "(?i)", ""),
		"escapes":         filled(n, "", `\x{61}`, ""),
		"many characters": filled(half, "[", "一丁七", "]{900000}"),
		"a class of each": filled(n, "", "[^a]", ""),
		"dots and carets": filled(n, "", "^.$", ""),
		"nested":          strings.Repeat("(", 190) + filled(n-400, "", "a|", "b") + strings.Repeat(")", 190),
	} {
		add("regex", name, pattern)
		if name != "plain" && name != "alternatives" && name != "unfinished" {
			continue
		}
		add("json", "pattern of "+name, map[string]any{"type": "string", "pattern": pattern[:n-100]})
		add("structural_tag", "pattern of "+name, `{"format":{"pattern":`+quoted(pattern[:half])+`}}`)
		add("grammar", "expression of "+name, "start: /"+pattern[:n-100]+"/\n")
	}
	chain := func(n int, mention, rule string) string { // each rule behind the one that it needs
		k := n / (len(mention) + len(rule) + 10)
		var b strings.Builder
		b.WriteString("root ::= ")
		for i := range k {
			fmt.Fprintf(&b, mention, i)
		}
		b.WriteString("\nr0 ::= \"a\"\n")
		for i := 1; i < k; i++ {
			fmt.Fprintf(&b, rule, i, i-1)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"alternatives":    filled(n, "root ::= ", `"a"|`, `"b"`),
		"a sequence":      filled(n, "root ::= ", `"a" `, ""),
		"rules":           filled(n, "root ::= \"a\"\n", "r%d ::= \"a\"\n", ""),
		"backwards":       chain(n, "r%d ", "r%d ::= r%d\n"),
		"backwards, wide": chain(n/8, "r%d ", "r%d ::= r%d\n") + filled(n-n/4, "x ::= ", "r0 ", "\n"),
		"blanks":          filled(n, "root ::= ", "r \n\n\n\n ", "\nr ::= \"a\""),
		"comments":        filled(n, "root ::= \"a\"", "#\n", ""),
		"a text":          `root ::= "` + strings.Repeat("a", n-20) + `"`,
		"a class":         filled(n, "root ::= [", "一丁", "]{1000000}"),
		"repetitions":     filled(n, `root ::= "a"`, "+", ""),
		"nested": "root ::= " + strings.Repeat("(", 190) +
			filled(n-800, "", `"a"|`, `"b"`) + strings.Repeat(" \n)", 190),
		"lark rules":   filled(n, "start: \"a\"\n", "r%d: \"a\"\n", ""),
		"lark imports": filled(n, "start: \"a\"\n", "%import common.CNAME -> N%d\n", ""),
		"lark schemas": filled(n, "start: ", `%json {"type":"object"} `, "\n"),
		"lark folded":  filled(n, "start: ", "/[A-𞥃]/i ", "\n"),
		"lark ignores": filled(n, "start: \"a\"\n", "%ignore /a/\n", ""),
	} {
		add("grammar", name, text)
	}
	for name, schema := range hostileSchemas(n / 4) {
		add("json", name, json.RawMessage(schema))
	}
	for name, schema := range hostileSchemas(n / 32) {
		for _, style := range []string{"json", "qwen_xml", "cohere_xml"} {
			add("structural_tag", style+" of "+name,
				`{"format":{"type":"json_schema","style":"`+style+`","json_schema":`+schema+`}}`)
		}
	}
	for name, format := range map[string]string{
		"excludes": filled(n, `{"type":"any_text","excludes":[`, `"k%d",`, `"z"]}`),
		"a long end": filled(half, `{"type":"tag","begin":"","content":{"type":"any_text","excludes":[`,
			`"k%d",`, `"z"]},`) +
			filled(half, `"end":"`, `a`, `"}`),
		"many ends": filled(half, `{"type":"tag","begin":"","content":{"type":"sequence","elements":[`,
			`{"type":"any_text"},`, `{"type":"any_text"}]},`) +
			filled(half, `"end":[`, `"k%d",`, `"z"]}`),
		"tags": filled(half, `{"type":"triggered_tags","tags":[`,
			`{"begin":"k%d.","content":{"value":""},"end":""},`, `{"begin":"z","content":{"value":""},"end":""}],`) +
			filled(half, `"triggers":[`, `"k%d.",`, `"z"]}`),
		"tags excluding": filled(half, `{"type":"triggered_tags","triggers":["k"],"tags":[`,
			`{"begin":"k","content":{"value":""},"end":""},`, `{"begin":"k","content":{"value":""},"end":""}],`) +
			filled(half, `"excludes":[`, `"%d",`, `"z"]}`),
		"dispatch":    filled(n, `{"type":"dispatch","rules":[`, `["k%d",{"value":""}],`, `["z",{"value":""}]]}`),
		"elements":    filled(n, `{"type":"sequence","elements":[`, `{"value":""},`, `{"value":""}]}`),
		"options":     filled(n, `{"type":"or","elements":[`, `{"value":""},`, `{"value":""}]}`),
		"expressions": filled(n, `{"type":"or","elements":[`, `{"pattern":"\\pL"},`, `{"value":""}]}`),
		"grammars":    filled(n, `{"type":"or","elements":[`, `{"grammar":"root ::= \"a\""},`, `{"value":""}]}`),
		"excluded texts": filled(n, `{"type":"json_schema","json_schema":{"type":"array","items":{"type":"string"},`+
			`"minItems":100000},"excludes":[`,
			`"k%d",`, `"z"]}`),
	} {
		add("structural_tag", name, `{"format":`+format+`}`)
	}
	add("structural_tag", "structures", filled(half, `{"structures":[`,
		`{"begin":"k%d.","schema":{},"end":"a"},`, `{"begin":"z","schema":{},"end":"a"}],`)+
		filled(half, `"triggers":[`, `"k%d.",`, `"z"]}`))
	play("choice: many", filled(n, `{"choice": [`, `"a",`, `"b"]}`))
	play("choice: long", filled(n, `{"choice": ["`, `a`, `"]}`))
}

// hostileSchemas are JSON schemas of about n bytes each.
func hostileSchemas(n int) map[string]string {
	half := n / 2
	return map[string]string{
		"members": filled(n, `{"type":"object","properties":{`, `"k%d":{},`, `"z":{}}}`),
		"members of many": `{"type":"array","minItems":100000,"items":` +
			filled(n-100, `{"type":"object","properties":{`, `"k%d":{},`, `"z":{}}}`) + `}`,
		"required": filled(half, `{"required":[`, `"k%d",`, `"z"],`) +
			filled(half, `"properties":{`, `"k%d":{},`, `"z":{}}}`),
		"enum": filled(n, `{"enum":[`, `"k%d",`, `1]}`),
		"enum beside": filled(half, `{"enum":[`, `1,`, `1]`) +
			filled(half, "", `,"k%d":1`, `,"type":"integer"}`),
		"anyOf beside": filled(half, `{"anyOf":[`, `{},`, `{}]`) + filled(half, "", `,"k%d":1`, `}`),
		"anyOf types": filled(half, `{"type":[`, `"null",`, `"string"],`) +
			filled(half, `"allOf":[{"type":[`, `"null",`, `"string"]}]}`),
		"allOf required": filled(n, `{"allOf":[`, `{"required":["k%d"]},`, `{}]}`),
		"allOf members":  filled(n, `{"allOf":[`, `{"properties":{"k%d":{}}},`, `{}]}`),
		"allOf anyOf":    filled(n, `{"allOf":[`, `{"anyOf":[{}]},`, `{}]}`),
		"references": filled(half, `{"anyOf":[`, `{"$ref":"#/$defs/d0","k":1},`, `{}],`) +
			filled(half, `"$defs":{`, `"d%d":{},`, `"z":{}}}`),
		"references to one": filled(half, `{"anyOf":[`, `{"$ref":"#/$defs/d","k":1},`, `{}],`) +
			filled(half, `"$defs":{"d":{"const":"`, `a`, `"}}}`),
		"digits":            filled(n, `{"type":"number","multipleOf":0.`, `1`, `}`),
		"many digits":       filled(n, `{"type":"number","minimum":0.`, `1`, `}`),
		"exponents":         filled(n, `{"prefixItems":[`, `{"multipleOf":1e-300},`, `{}]}`),
		"strings":           filled(n, `{"const":"`, `a`, `"}`),
		"escapes":           filled(n, `{"const":"`, `\n`, `"}`),
		"formats":           filled(n, `{"prefixItems":[`, `{"format":"date-time"},`, `{}]}`),
		"patterns":          filled(n, `{"prefixItems":[`, `{"pattern":"\\pL"},`, `{}]}`),
		"patterns by names": filled(n, `{"patternProperties":{`, `"\\pL%d":{},`, `"z":{}}}`),
		"elements":          filled(n, `[`, `1,`, `1]`),
	}
}

// quoted is a text as a JSON string.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A form of a mebibyte takes about as much work and memory as it has bytes, or is
// refused, whatever it is made of and whichever field it stands in. (A reader that
// looks at some bytes again and again fails this by not ending.)
func TestFormsOfAMebibyte(t *testing.T) {
	rd := testReader(t, func(c *Config) { c.Engine.MaxModelLen = 1 << 17 })
	i := 0
	hostile(structured.MaxBytes, func(name, outputs string) {
		if i++; !nightly.Each(i, 2) {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := &openai.Sampling{Model: "m", StructuredOutputs: json.RawMessage(outputs)}
		q, bad := rd.FromPrompt("k", rd.Prompt("Hello"), p, 1<<16, true)
		if bad == nil {
			rd.content(q, 0)
		} else if bad.Status != 400 || bad.Message == "" {
			t.Errorf("%s: %v", name, bad)
		}
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 400 {
			t.Errorf("%s: %d MiB of memory were taken", name, mib)
		}
	})
}

// A form may stand in other fields, too: guided_* and response_format.
func TestFormsOfOtherFieldsAreBounded(t *testing.T) {
	t.Parallel()
	rd := testReader(t, nil)
	plain := strings.Repeat("a", structured.MaxBytes)
	for name, raw := range map[string]string{
		"guided_regex":   `{"guided_regex":"` + plain + `"}`,
		"guided_json":    `{"guided_json":{"pattern":"` + plain + `"}}`,
		"guided_choice":  filled(structured.MaxBytes, `{"guided_choice":[`, `"a",`, `"b"]}`),
		"guided_grammar": `{"guided_grammar":"start: /` + plain + `/\n"}`,
		"a schema": `{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"pattern":"` +
			plain + `"}}}}`,
		"response_format's tags": `{"response_format":{"type":"structural_tag","format":{"type":"regex","pattern":"` +
			plain + `"}}}`,
	} {
		p := &openai.Sampling{Model: "m"}
		if err := json.Unmarshal([]byte(raw), p); err != nil {
			t.Fatal(name, err)
		}
		if _, bad := rd.FromPrompt("k", rd.Prompt("Hello"), p, 20, true); bad == nil || bad.Status != 400 {
			t.Errorf("%s: expected status 400, got %v", name, bad)
		}
	}
}

// left is a client that has left.
type left struct{}

func (left) HasLeft() bool { return true }

// Nothing more is made for a client that has left.
func TestFormsEndWithTheirClient(t *testing.T) {
	t.Parallel()
	rd := testReader(t, nil)
	looked := work{client: left{}}
	p := &openai.Sampling{Model: "m",
		StructuredOutputs: json.RawMessage(`{"regex":"` + strings.Repeat("a|", 10000) + `"}`)}
	head := Head{Client: left{}}
	q := head.newRequest(false)
	if form, bad := rd.formOf(q, p); bad == nil || form != nil {
		t.Errorf("a form was made for nobody: %v", bad)
	}
	for n := 0; looked.spend(1); n++ {
		if n > lookWork {
			t.Fatal("nobody looks whether the client is there")
		}
	}
}
