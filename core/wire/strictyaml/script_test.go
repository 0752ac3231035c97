package strictyaml_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

type colour string

func (colour) Values() []string { return []string{"red", "green", "light-blue"} }

// metres reads itself from text, in a unit that the field's tag names.
type metres struct {
	Long float64
	unit string
}

func (m *metres) SetUnit(name string) { m.unit = name }

func (m *metres) UnmarshalText(text []byte) (err error) {
	number, ok := strings.CutSuffix(string(text), m.suffix())
	if m.Long, err = strconv.ParseFloat(number, 64); err != nil || !ok {
		return errors.New("not " + m.Expected())
	}
	if m.Long > 1e6 {
		return errors.New("that is beyond the end of the world")
	}
	return nil
}

func (m metres) suffix() string {
	if m.unit == "" {
		return "m"
	}
	return m.unit
}
func (m metres) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(m.Long) + m.suffix()), nil }
func (m metres) Expected() string             { return "a length such as 3" + m.suffix() }
func (m metres) Range() (low, high float64)   { return m.Long, m.Long }

// InsteadOf is for files of older days.
func (m *metres) InsteadOf(mapping map[string]any) string {
	if n, ok := mapping["metres"]; ok {
		return fmt.Sprint(n) + m.suffix()
	}
	return ""
}

// either is a text or a list of texts.
type either []string

func (e *either) ReadYAML(v strictyaml.Value) strictyaml.Problems {
	if v.IsList() {
		return v.Decode((*[]string)(e))
	}
	if !v.IsText() {
		return strictyaml.Problems{v.Problem(v.Found(), "a text or a list of them", "")}
	}
	*e = either{v.Text()}
	return nil
}

type common struct {
	Name string `json:"name" yaml:"name"`
}

type part struct {
	Colour colour `json:"colour,omitempty" yaml:"colour"`
	Weight int    `json:"weight" yaml:"weight" min:"0"`
}

type sample struct {
	common  `yaml:",inline"`
	At      strictyaml.Value `json:"." yaml:"-"`
	On      bool             `json:"on" yaml:"on"`
	Count   int              `json:"count" yaml:"count" min:"1" max:"10"`
	Seed    uint64           `json:"seed" yaml:"seed" max:"1000000"`
	Share   float64          `json:"share" yaml:"share" above:"0" max:"1"`
	Mode    string           `json:"mode" yaml:"mode" oneof:"fast,slow"`
	Wait    time.Duration    `json:"wait" yaml:"wait" min:"1ms" max:"1h"`
	Length  metres           `json:"length" yaml:"length" above:"0m"`
	Far     metres           `json:"far" yaml:"far" unit:"km" max:"40km"`
	Parts   []part           `json:"parts" yaml:"parts" max:"3"`
	Numbers map[string]int   `json:"numbers" yaml:"numbers"`
	Maybe   *float64         `json:"maybe" yaml:"maybe"`
	Either  either           `json:"either" yaml:"-"`
	Free    any              `json:"free" yaml:"-"`
	Raw     strictyaml.Value `json:"raw" yaml:"-"`
}

func (s sample) show() string {
	text, err := json.Marshal(
		map[string]any{"name": s.Name, "on": s.On, "count": s.Count, "seed": s.Seed, "share": s.Share, "mode": s.Mode,
			"wait":   s.Wait.String(),
			"length": s.Length, "far": s.Far, "parts": s.Parts, "numbers": s.Numbers, "maybe": s.Maybe,
			"either": s.Either,
			"free":   s.Free, "raw": s.Raw.Any()})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("line %d: %s\n", s.At.Line(), text)
}

// read walks over a document with a Value's own methods.
func read(v strictyaml.Value) string {
	var out strings.Builder
	v.Fields(map[string]func(strictyaml.Value){
		"text":  func(v strictyaml.Value) { fmt.Fprintf(&out, "text %q\n", v.Text()) },
		"word":  func(v strictyaml.Value) { fmt.Fprintf(&out, "word %q\n", v.OneOf("red", "green")) },
		"whole": func(v strictyaml.Value) { fmt.Fprintf(&out, "whole %d\n", v.Int(1, 100, 7)) },
		"float": func(v strictyaml.Value) { fmt.Fprintf(&out, "float %v\n", v.Float()) },
		"truth": func(v strictyaml.Value) { fmt.Fprintf(&out, "truth %v\n", v.Bool()) },
		"texts": func(v strictyaml.Value) { fmt.Fprintf(&out, "texts %v\n", v.Texts()) },
		"list":  func(v strictyaml.Value) { fmt.Fprintf(&out, "list %q\n", v.TextList()) },
		"deep": func(v strictyaml.Value) {
			at := v.At("a.b[1].c")
			fmt.Fprintf(&out, "deep %v on line %d: %s %s\n", at.Given(), at.Line(), at.Path(), at.Found())
		},
		"excerpt": func(v strictyaml.Value) { fmt.Fprintf(&out, "excerpt %q\n", v.Excerpt()) },
	})
	return out.String()
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text := strings.NewReplacer("⇥", "\t", "⏎", "\n").Replace(d.Input)
			o := strictyaml.Options{File: "my.yaml", Kubernetes: d.HasArg("kubernetes"), Many: d.HasArg("many"),
				WarnUnknown: d.HasArg("warn")}
			if d.HasArg("small") {
				o.MaxBytes = 10
			}
			doc, err := strictyaml.Parse([]byte(text), o)
			if err != nil {
				return err.Error() + "\n"
			}
			var out strings.Builder
			problems := strictyaml.Problems{}
			for _, v := range append(doc.Values, doc.Root())[:max(1, len(doc.Values))] {
				switch d.Cmd {
				case "decode":
					s := sample{common: common{"unnamed"}}
					if d.HasArg("fold") {
						v = v.Fold()
					}
					problems = append(problems, v.Decode(&s)...)
					out.WriteString(s.show())
				case "read":
					v.CheckKeys()
					out.WriteString(read(v))
				default:
					t.Fatal(d.Cmd)
				}
			}
			for _, w := range doc.Warnings() {
				fmt.Fprintf(&out, "warning: %s\n", w)
			}
			if err := append(problems, doc.Problems()...).Err(); err != nil {
				fmt.Fprintln(&out, err)
			}
			return out.String()
		})
	})
}

// Limits that take long texts to reach.
func TestLimits(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	for text, want := range map[string]string{
		strings.Repeat("[", 101) + strings.Repeat("]", 101): "my.yaml:1:101: too deep; expected at most 100 levels",
		bomb: "too many values; expected at most 1048576, aliases written out",
		strings.Repeat("#", strictyaml.MaxBytes+1): "my.yaml: found 4194305 bytes; expected at most 4194304",
	} {
		if _, err := strictyaml.Parse([]byte(text), strictyaml.Options{File: "my.yaml"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %.200v; want %s", text, err, want)
		}
	}
	doc, err := strictyaml.Parse([]byte(strings.Repeat("- {x: 1}\n", 5000)), strictyaml.Options{File: "my.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	var parts []part
	lines := strings.Split(doc.Root().Decode(&parts).Err().Error(), "\n")
	if len(lines) != 51 || lines[50] != "my.yaml: and 950 more mistakes" ||
		!strings.HasPrefix(lines[49], "my.yaml:50:4: [49].x: unknown field") {
		t.Errorf("%d lines, the last %q %q", len(lines), lines[len(lines)-2], lines[len(lines)-1])
	}
}

// Every field of the sample can be read: a type that cannot is a panic.
func TestFields(t *testing.T) {
	var names []string
	for _, f := range strictyaml.Fields(reflect.TypeFor[sample]()) {
		names = append(names, f.Name)
	}
	if got := strings.Join(names,
		" "); got != "name on count seed share mode wait length far parts numbers maybe either free raw" {
		t.Error(got)
	}
}
