package chattemplate

import (
	"runtime"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/nightly"
)

// What multiplies sizes is refused before it takes memory, and what a library says
// when it breaks is nobody's business.
func TestSizesAreBounded(t *testing.T) {
	if !nightly.On() { // a gibibyte of memory for each case takes long
		defer func(real int) { maxValues = real }(maxValues)
		maxValues = 1 << 26
	}
	most := uint64(maxValues) + 256<<20
	c := &Conversation{Messages: []Message{{Role: "user", Content: strings.Repeat("a b\n", 2000)}}}
	doubled := "{% set ns = namespace(x=V) %}{% for i in range(60) %}{% set ns.x = E %}{% endfor %}{{ ns.x | length }}"
	doubling := func(first, each string) string {
		return strings.NewReplacer("V", first, "E", each).Replace(doubled)
	}
	for name, text := range map[string]string{
		"slice":             "{{ messages | list | slice(1000000000) | list }}",
		"batch":             "{{ messages | batch(1000000000, 'x') | list }}",
		"times":             "{{ 'a' * 10000000000 }}",
		"times in a tag":    "{% set x = 'a' * 10000000000 %}",
		"times in if":       "{% if 'a' * 10000000000 %}{% endif %}",
		"times in for":      "{% for x in 'a' * 10000000000 %}{% endfor %}",
		"times in a macro":  "{% macro m(x) %}{{ x * 10000000000 }}{% endmacro %}{{ m('a') }}",
		"times in a call":   "{% macro m(x) %}{{ caller() }}{% endmacro %}{% call m('a' * 10000000000) %}{% endcall %}",
		"times in with":     "{% with x = 1, y = 'a' * 10000000000 %}{% endwith %}",
		"times in its else": "{% with x = 1 if false else 'a' * 10000000000 %}{% endwith %}",
		"times within with": "{% with x = 'a' %}{{ x * 10000000000 }}{% endwith %}",
		"filter":            "{% filter center(10000000000) %}a{% endfilter %}",
		"filter's argument": "{% filter replace('a', 'a' * 10000000000) %}a{% endfilter %}",
		"filters":           "{% filter replace('a', 'b' * 20000) | replace('b', 'c' * 20000) %}a{% endfilter %}",
		"filtered passage": "{% filter upper %}{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}{% " +
			"endfilter %}",
		"within filter":     "{% filter upper %}{{ 'a' * 10000000000 }}{% endfilter %}",
		"with by with":      "{% for i in range(99999) %}{% with x = 'a' * 10000000 %}{% endwith %}{% endfor %}",
		"times in a test":   "{{ ('a' * 10000000000) is string }}",
		"times in a filter": "{{ 'a' | replace('a', 'a' * 10000000000) }}",
		"times in an index": "{{ ('a' * 10000000000)[0] }}{{ ['a' * 10000000000][0] }}{{ {'k': 'a' * 10000000000}.k }}",
		"times in a method": "{{ 'a'.replace('a', 'a' * 10000000000, 1) }}",
		"times in do":       "{% do messages.append('a' * 10000000000) %}",
		"times many":        "{{ 'a' * 4000 * 4000 * 4000 }}",
		"replace": "{{ messages[0].content | replace('', messages[0].content | replace('', " +
			"messages[0].content)) }}",
		"replace method": "{% set x = messages[0].content %}{% set y = x.replace('a', x, 9999) %}{{ " +
			"y.replace('a', y, 99999999) }}",
		"join":        "{{ range(99999) | join(messages[0].content) }}",
		"join method": "{{ messages[0].content.join((range(99999) | map('string') | list)) }}",
		"zfill":       "{{ 'a'.zfill(10000000000) }}",
		"ljust":       "{{ 'a'.ljust(10000000000, 'x') }}",
		"center":      "{{ 'a' | center(10000000000) }}",
		"indent":      "{{ messages[0].content | indent(1000000000) }}",
		"tojson":      "{{ messages | tojson(indent=1000000000) }}",
		"pprint": "{% set x = messages %}{{ [x,x] | pprint | replace('', messages[0].content) | " +
			"replace('', messages[0].content) }}",
		"format":          "{{ '" + strings.Repeat("%1000000d", 1000) + "' | format(1) }}",
		"format method":   "{{ '{:1000000000}'.format(1) }}",
		"arguments":       "{{ '" + strings.Repeat("%[1]s", 10000) + "' | format(messages[0].content) }}",
		"doubled texts":   doubling("'ab'", "ns.x ~ ns.x"),
		"doubled sums":    doubling("'ab'", "ns.x + ns.x"),
		"doubled lists":   doubling("[1]", "ns.x + ns.x"),
		"nested lists":    doubling("[1]", "[ns.x, ns.x]"),
		"nested objects":  doubling("{'a': 1}", "{'a': ns.x, 'b': ns.x}"),
		"joined":          doubling("'ab'", "[ns.x, ns.x] | join"),
		"a passage":       "{% set x %}{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}{% endset %}",
		"a list of texts": "{% set x = 'a' * 10000000 %}{{ [" + strings.Repeat("x, ", 1000) + "x] }}",
		"again and again": "{% for i in range(99999) %}{% set x = 'a' * 10000000 %}{% endfor %}",
		"a range":         "{{ range(1000000000) }}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		template, err := Parse("x", text, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := template.Render(c, nil)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: %d bytes are written", name, len(got))
		} else if strings.Contains(err.Error(), "runtime error") || strings.Contains(err.Error(), "goroutine") {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%s: %d bytes of memory were taken, expected at most %d", name, n, most)
		}
	}
	for name, text := range map[string]string{
		"a panic": "{{ 'a' * -1 }}{{ 1 % 0 }}", "an index": "{{ 'a'.center(3, '') }}",
		"a map": "{% set x = {} %}{% set x[messages] = 1 %}",
	} {
		template, err := Parse("x", text, nil)
		if err == nil {
			_, err = template.Render(c, nil)
		}
		if err != nil && (strings.Contains(err.Error(), "runtime error") || strings.Contains(err.Error(), "reflect")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
