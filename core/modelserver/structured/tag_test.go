package structured

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tokenText is a vocabulary of ten tokens.
func tokenText(id uint32) (string, bool) { return fmt.Sprintf("<|%d|>", id), id < 10 }

// The formats of structural tags are written as they say. xgrammar 0.2.8 takes each
// of the tags, and each text that these expressions match in form.
func TestTags(t *testing.T) {
	t.Parallel()
	const (
		schema = `{"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"type":"integer"}},` +
			`"required":["a"]}}`
		call = `{"type":"tag","begin":"<f=a>","content":` + schema + `,"end":"</f>"}`
		many = `"type":"triggered_tags","triggers":["<f="],"tags":[` + call +
			`,{"begin":"<f=b>","content":{"type":"const_string","value":"1"},"end":["</f>","</g>"]}]`
		styled = `"json_schema":{"type":"object","properties":{"k":{"type":"string"},"e":{"enum":["x y",3]},` +
			`"n":{"$ref":"#/$defs/n"},"l":{"type":"array","items":{"type":"null"}},"p":{"type":"string",` +
			`"pattern":"[a-z]{3}"},"o":{"type":"boolean"}},` +
			`"required":["k","e","n","l","p"],"$defs":{"n":{"type":"integer"}}}`

		deep = `"json_schema":{"type":"object","additionalProperties":false,"properties":{"a<":{"type":"string"},` +
			`"l":{"type":"array","prefixItems":[{"type":"boolean"}],"items":{"$ref":"#/$defs/n"}},"e":{"enum":["x y",` +
			`3,{"k":["z",1]}]},` +
			`"t":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},"required":["a<","e"],"$defs":{"n":{"type":"integer"}}}`

		object = `\{"a": \d+\}`
		words  = `[0-9a-z ]*`
		tag    = `<f=a>` + object + `</f>`
		either = `(` + tag + `|<f=b>1</[fg]>)`
	)
	xml := func(before, text, number, array, behind string) string {
		member := func(name, middle, value string) string { return before + name + middle + value + behind }
		return member("k", text, words) + `(` + member("e", text, "x y") + `|` + member("e", number, "3") + `)` +
			member("n", number, `\d+`) +
			member("l", array, `\[(null(, )?)*\]`) + member("p", text, `[a-z]{3}`) + `(` +
			member("o", strings.Replace(number, "number", "boolean", 1), `(true|false)`) + `)?`
	}
	for name, c := range map[string]struct{ format, want string }{
		"text":               {`{"type":"any_text"}`, words},
		"short text":         {`{"type":"any_text","max_chars":5,"max_tokens":9}`, `[0-9a-z ]{0,5}`},
		"text without":       {`{"type":"any_text","excludes":["a","3"]}`, `[^a3]*`},
		"nothing":            {`{"type":"any_text","excludes":[""]}`, ``},
		"a string":           {`{"type":"const_string","value":"é"}`, `é`},
		"told by its member": {`{"value":"é"}`, `é`},
		"an expression":      {`{"type":"regex","pattern":"[ab]{3}"}`, `[ab]{3}`},
		"a grammar":          {`{"type":"grammar","grammar":"root ::= \"a\" | \"b\""}`, `[ab]`},
		"a schema":           {schema, object},
		"a sequence": {
			`{"type":"sequence","elements":[{"type":"tag","begin":"<think>","content":{"type":"any_text"},` +
				`"end":"</think>"},` + schema + `]}`, `<think>` + words + `</think>` + object},
		"one of": {`{"type":"or","elements":[` + schema + `,{"type":"const_string","value":"b"}]}`,
			`(` + object + `|b)`},
		"perhaps":       {`{"type":"optional","content":` + schema + `}`, `(` + object + `)?`},
		"often":         {`{"type":"star","content":` + schema + `}`, `(` + object + `)*`},
		"once at least": {`{"type":"plus","content":` + schema + `}`, `(` + object + `)+`},
		"so often": {`{"type":"repeat","min":2,"max":3,"content":` + schema + `}`,
			`(` + object + `){2,3}`},
		"tags":               {`{` + many + `}`, `(` + words + either + `)*` + words},
		"tags, one at least": {`{` + many + `,"at_least_one":true}`, either + `(` + words + either + `)*` + words},
		"tags, one at most":  {`{` + many + `,"stop_after_first":true}`, words + either + `?`},
		"one tag":            {`{` + many + `,"at_least_one":true,"stop_after_first":true}`, either},
		"tags in a tag": {`{"type":"tag","begin":"<x>","content":{` + many + `},"end":"</x>"}`,
			`<x>(` + words + either + `)*` + words + `</x>`},
		"tags and no text": {`{"type":"tags_with_separator","tags":[` + call + `],"separator":"\n"}`,
			`(` + tag + `(\n` + tag + `)*)?`},
		"one and no text": {`{"type":"tags_with_separator","tags":[` + call +
			`],"separator":"\n","at_least_one":true,"stop_after_first":true}`, tag},
		"what follows patterns": {`{"type":"dispatch","rules":[["<a>",` + schema + `]]}`,
			`(` + words + `<a>` + object + `)*` + words},
		"what follows the first": {`{"type":"dispatch","rules":[["<a>",` + schema + `]],"loop":false}`,
			words + `(<a>` + object + `)?`},
		"a token": {
			`{"type":"sequence","elements":[{"type":"token","token":3},{"type":"any_tokens","max_tokens":3}]}`,
			`<\|3\|>[0-9a-z ]{0,3}`},
		"another token": {`{"type":"exclude_token","exclude_tokens":[3]}`, `[0-9a-z]+`},
		"what follows tokens": {`{"type":"token_dispatch","rules":[[3,` + schema + `]]}`,
			`(` + words + `<\|3\|>` + object + `)*` + words},
		"tags of tokens": {
			`{"type":"token_triggered_tags","trigger_tokens":[3],"tags":[{"begin":{"type":"token","token":3},` +
				`"content":` + schema + `,"end":"x"}]}`, `(` + words + `<\|3\|>` + object + `x)*` + words},
		"strings without letters": {
			`{"type":"json_schema","json_schema":{"type":"object","properties":{"k":{"type":"string","minLength":2}},` +
				`"required":["k"],"additionalProperties":false},"excludes":["a","e","0"]}`, `\{"k": "[^ae0]{2,}"\}`},
		"Qwen's": {`{"type":"json_schema","style":"qwen_xml",` + styled + `}`,
			xml("<parameter=", ">", ">", ">", "</parameter>")},
		"a given object": {
			`{"type":"json_schema","style":"qwen_xml","json_schema":{"type":"object",` +
				`"properties":{"k":{"const":{"a":{"b":1}}}},"required":["k"]}}`,
			`<parameter=k>{"a":{"b":1}}</parameter>`},
		"Qwen's, formerly": {`{"type":"qwen_xml_parameter",` + styled + `}`,
			xml("<parameter=", ">", ">", ">", "</parameter>")},
		"MiniMax'": {`{"type":"json_schema","style":"minimax_xml",` + styled + `}`,
			xml(`<parameter name="`, `">`, `">`, `">`, "</parameter>")},
		"GLM's": {`{"type":"json_schema","style":"glm_xml",` + styled + `}`,
			xml(`<arg_key>`, `</arg_key><arg_value>`, `</arg_key><arg_value>`, `</arg_key><arg_value>`,
				"</arg_value>")},
		"DeepSeek's": {`{"type":"json_schema","style":"deepseek_xml",` + styled + `}`,
			xml(`<｜DSML｜parameter name="`, `" string="true">`, `" string="false">`, `" string="false">`,
				"</｜DSML｜parameter>")},
		"Kimi's": {`{"type":"json_schema","style":"kimi_k3_xml",` + styled + `}`,
			xml(`<\|open\|>argument key="`, `" type="string"<\|sep\|>`, `" type="number"<\|sep\|>`,
				`" type="array"<\|sep\|>`, `<\|close\|>argument<\|sep\|>`)},
		"Cohere's": {`{"type":"json_schema","style":"cohere_xml",` + deep + `}`,
			`(<cofl:value( name="(a&lt;|l|e|t)")? type="(raw">` + words +
				`|json">(true|false|null|\d+|\{"k":\["z",1\]\})|list">|dict">)|</cofl:value>)*`},
		"MiniMax M3's": {`{"type":"json_schema","style":"minimax_m3_xml",` + deep + `}`,
			`(\]<\]minimax\[>\[<(a<|l|e|t|item|k)>|` + words +
				`|true|false|null|1|\]<\]minimax\[>\[</(a<|l|e|t|item|k)>)*`},
	} {
		want := regexp.MustCompile(`^(?s:` + c.want + `)$`)
		g, err := Tag([]byte(`{"type":"structural_tag","format":`+c.format+`}`), tokenText, budget())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		texts := map[string]bool{}
		for seed := range uint64(50) {
			text := say(g, seed, 200)
			if texts[text] = true; !want.MatchString(text) {
				t.Errorf("%s: %q, expected %s", name, text, c.want)
				break
			}
		}
		if strings.ContainsAny(c.want, `\*`) && len(texts) < 10 {
			t.Errorf("%s: only %d texts", name, len(texts))
		}
	}
}

// deepTags are schemas for the styles with tags at any depth.
var deepTags = []string{
	`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["b"],"minProperties":2}`,
	`{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"boolean"},"c":{"type":"number","minimum":3}},` +
		`"maxProperties":1,"minProperties":1}`,
	`{"type":"object","properties":{"v":{"type":"array","items":{"type":"array","items":{"type":"string"},` +
		`"minItems":1,"maxItems":3},"maxItems":3}},"required":["v"]}`,
	`{"type":"object","properties":{"v":{"type":"array","prefixItems":[{"type":"null"},{"const":["a",1]}],` +
		`"items":{"const":{"x":"y"}},"minItems":3}},"required":["v"]}`,
	`{"type":"object","properties":{"name":{"type":"string"},"child":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},` +
		`"required":["name","child"]}`,
	`{"type":"object","properties":{"v":{"enum":["x",3,true,null,[1,"z"]]},"w":{"type":["string","integer"]},` +
		`"x":{"oneOf":[{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]},{"type":"array",` +
		`"items":{"type":"boolean"}}]}},"required":["v","w","x"]}`,
	`{"type":"array","items":{"type":"object","properties":{"q":{"type":"null"}},"required":["q"]},"minItems":1,` +
		`"maxItems":2}`,
	`{"type":"string"}`, `{"type":"object"}`,
	`{"anyOf":[{"type":"integer"},{"type":"object","properties":{"v":{"type":"array"}},"required":["v"]}]}`,
}

// Every tag is closed, and a value has the type that its tag names. xgrammar 0.2.8 accepts these texts.
func TestTagsAtAnyDepth(t *testing.T) {
	t.Parallel()
	marks := map[string]*regexp.Regexp{
		"cohere_xml": regexp.MustCompile(
			`<cofl:value(?: name="[^"<>]+")? type="(raw|json|dict|list)">|</(cofl:value)>`),
		"minimax_m3_xml": regexp.MustCompile(`\]<\]minimax\[>\[<([^/>][^>]*)>|\]<\]minimax\[>\[</([^>]+)>`)}
	for style, mark := range marks {
		for _, schema := range slices.Concat(deepTags, map[string][]string{"cohere_xml": {`{}`, `true`,
			`{"type":"object","additionalProperties":{"type":"integer"},"required":["z"],"minProperties":4,` +
				`"properties":{"key1":{}}}`,
			`{"type":"object","properties":{"v":{"type":"string","pattern":"[a-z]{3}"},"w":{"type":"string",` +
				`"format":"date"},"x":{"type":"string","maxLength":3},"y":{"minimum":3}},"required":["v","w","x",` +
				`"y"]}`}}[style]) {
			format := `{"type":"json_schema","style":"` + style + `","json_schema":` + schema + `}`
			g, err := Tag([]byte(`{"format":`+format+`}`), tokenText, budget())
			if err != nil {
				t.Errorf("%s: %v", format, err)
				continue
			}
			for seed := range uint64(40) {
				text := say(g, seed, 300)
				var open []string
				at := 0
				for _, m := range mark.FindAllStringSubmatchIndex(text, -1) {
					between := text[at:m[0]]
					at = m[1]
					if m[2] >= 0 {
						open = append(open, text[m[2]:m[3]])
						continue
					}
					if len(open) == 0 || style != "cohere_xml" && open[len(open)-1] != text[m[4]:m[5]] {
						t.Fatalf("%s: %q closes what is not open", format, text)
					}
					if kind := open[len(open)-1]; kind == "json" != json.Valid([]byte(between)) &&
						(kind == "json" || kind == "dict" || kind == "list") {
						t.Errorf("%s: %q in %q is told to be %s", format, between, text, kind)
					}
					open = open[:len(open)-1]
				}
				if len(open) > 0 {
					t.Errorf("%s: %q leaves %v open", format, text, open)
				}
			}
		}
	}
}

// The older form is one of triggered tags.
func TestOlderTags(t *testing.T) {
	t.Parallel()
	g, err := Tag([]byte(`{"type":"structural_tag","structures":[{"begin":"<f=a>","schema":{"type":"integer"},`+
		`"end":"</f>"}],"triggers":["<f="]}`), tokenText, budget())
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^([0-9a-z ]*<f=a>\d+</f>)*[0-9a-z ]*$`)
	for seed := range uint64(50) {
		if text := say(g, seed, 200); !want.MatchString(text) {
			t.Errorf("%q", text)
		}
	}
}

// What xgrammar refuses is refused, with its words where it has some for people.
func TestTagsThatAreRefused(t *testing.T) {
	t.Parallel()
	const any, tag = `{"type":"any_text"}`,
		`{"type":"tag","begin":"<f=a>","content":{"type":"const_string","value":"x"},"end":"</f>"}`
	unlimited := "When the content is unlimited, at least one end string must be non-empty"
	open := func(content string) string { return `{"type":"tag","begin":"<a>","content":` + content + `,"end":""}` }
	for format, want := range map[string]string{
		`"x"`:            "Format must be an object",
		`{"type":"zzz"}`: "Format type not recognized: zzz",
		`{"type":"regex","pattern":""}`: "Regex format must have a pattern field with a " +
			"non-empty string",
		`{"type":"regex","pattern":"["}`:          "",
		`{"type":"grammar","grammar":"start: A"}`: "",
		`{"type":"grammar","grammar":""}`: "Grammar format must have a grammar field with a " +
			"non-empty string",
		`{"type":"json_schema"}`: "JSON schema format must have a json_schema field " +
			"with a object or boolean value",
		`{"type":"json_schema","json_schema":{"type":"zzz"}}`:                                                 "Unsupported type",
		`{"type":"json_schema","json_schema":{},"style":"zzz"}`:                                               "style must be",
		`{"type":"json_schema","json_schema":{},"style":"cohere_xml","excludes":["a"]}`:                       "JSONSchemaFormat.excludes is not supported for cohere_xml",
		`{"type":"json_schema","json_schema":{},"style":"minimax_m3_xml"}`:                                    "minimax_m3_xml does not support unconstrained schemas",
		`{"type":"json_schema","json_schema":{"additionalProperties":true},"style":"minimax_m3_xml"}`:         "minimax_m3_xml requires fixed object property names",
		`{"type":"json_schema","json_schema":{"type":"string","minLength":1},"style":"minimax_m3_xml"}`:       "String pattern, recognized format, and length constraints",
		`{"type":"json_schema","json_schema":{"properties":{"/a":{"type":"null"}}},"style":"minimax_m3_xml"}`: "Invalid minimax_m3_xml element name: /a",
		`{"type":"json_schema","json_schema":{"type":"object","required":["a"]},"style":"minimax_m3_xml"}`:    "minimax_m3_xml required property has no fixed schema: a",
		`{"type":"json_schema","json_schema":{"type":"object","minProperties":1},"style":"cohere_xml"}`:       "minProperties is greater than the number of properties",
		`{"type":"json_schema","json_schema":{"type":"array","prefixItems":[{"type":"null"}],"maxItems":0},` +
			`"style":"cohere_xml"}`: "maxItems is less than the number of prefixItems: 0 < 1",
		`{"type":"json_schema","json_schema":{},"max_whitespace_cnt":0}`: "max_whitespace_cnt must be positive.",
		`{"type":"sequence","elements":[]}`: "Sequence format must have at least one " +
			"element",
		`{"type":"or","elements":[]}`: "Or format must have at least one element",
		`{"type":"repeat","min":3,"max":1,"content":` + any +
			`}`: "Repeat min must be <= max",
		`{"type":"repeat","min":-1,"max":1,"content":` + any +
			`}`: "Repeat min must be >= 0",
		`{"type":"repeat","min":1,"content":` + any +
			`}`: "Repeat format must have a " +
			"max field (number)",
		`{"type":"tag","begin":"<a>","content":` + any +
			`,"end":[]}`: "Tag format's end array cannot " +
			"be empty",
		`{"type":"tag","begin":"<a>","content":` + any +
			`,"end":3}`: "Tag format's end field must be a string or array of strings",
		open(any): unlimited,
		open(`{"type":"star","content":` + tag + `}`):                    unlimited,
		open(`{"type":"sequence","elements":[` + any + `,` + tag + `]}`): unlimited,
		open(`{"type":"repeat","min":1,"max":-1,"content":` + tag + `}`): unlimited,
		`{"type":"triggered_tags","triggers":[],"tags":[` + tag +
			`]}`: "Triggered tags format's triggers must be non-empty",
		`{"type":"triggered_tags","triggers":[""],"tags":[` + tag +
			`]}`: "Triggered tags format's triggers must be non-empty strings",
		`{"type":"triggered_tags","triggers":["<f="],"tags":[]}`: "triggered_tags " +
			"format's tags must be non-empty",
		`{"type":"triggered_tags","triggers":["<g="],"tags":[` + tag +
			`]}`: "One tag does not match any trigger in a triggered tags format",
		`{"type":"triggered_tags","triggers":["<f","<f="],"tags":[` + tag +
			`]}`: "One tag matches multiple triggers in a triggered tags format",
		`{"type":"triggered_tags","triggers":["<f=","<h"],"tags":[` + tag + `]}`: "",
		`{"type":"triggered_tags","triggers":["<f="],"tags":[` + tag +
			`],"at_least_one":"yes"}`: "at_least_one must be a boolean",
		`{"type":"triggered_tags","triggers":["<f="],"tags":[` + tag +
			`],"excludes":[""]}`: "Triggered tags format's excluded_strs must be non-empty strings",
		`{"type":"triggered_tags","triggers":["<f="],"tags":[{"type":"any_text","begin":"<f=a>"}]}`: `Tag format's ` +
			`type must be a string "tag"`,
		`{"type":"tags_with_separator","tags":[` + tag +
			`]}`: "Tags with separator format's separator field must be a string",
		`{"type":"dispatch","rules":[]}`: "TagDispatch " +
			"format rules must be non-empty",
		`{"type":"token","token":"<x>"}`: "Token string " +
			"resolution requires tokenizer_info",
		`{"type":"token","token":10}`: "Token id 10 is " +
			"not in the vocabulary",
		`{"type":"any_text","max_tokens":-3}`: "max_tokens in " +
			"any_text must be a non-negative 32-bit integer or null",
		`{"type":"token_triggered_tags","trigger_tokens":[1],"tags":[` + tag + `]}`: "",
	} {
		if _, err := Tag([]byte(`{"format":`+format+`}`), tokenText, budget()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", format, err, want)
		}
	}
	for _, raw := range []string{`[]`, `null`, `{`, ``, `{"type":"structural_tag"}`,
		`{"type":"x","format":` + any + `}`,
		`{"structures":[],"triggers":["a"]}`, `{"structures":[{"begin":"a","schema":null,"end":"b"}],"triggers":["a"]}`,
		`{"structures":[{"begin":"a","schema":{},"end":"b"}]}`} {
		if _, err := Tag(json.RawMessage(raw), tokenText, budget()); err == nil {
			t.Errorf("%s is taken", raw)
		}
	}
}
