package strictyaml_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// samples are right by all their tags.
func samples() *rapid.Generator[sample] {
	return rapid.Custom(func(t *rapid.T) sample {
		s := sample{
			common: common{Name: rapid.String().Draw(t, "name")},
			On:     rapid.Bool().Draw(t, "on"), Count: rapid.IntRange(1, 10).Draw(t, "count"),
			Seed:    rapid.Uint64Range(0, 1000000).Draw(t, "seed"),
			Share:   rapid.Float64Range(math.SmallestNonzeroFloat64, 1).Draw(t, "share"),
			Mode:    rapid.SampledFrom([]string{"fast", "slow"}).Draw(t, "mode"),
			Wait:    time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "wait")),
			Length:  metres{Long: rapid.Float64Range(0.1, 1e6).Draw(t, "length")},
			Far:     metres{rapid.Float64Range(0, 40).Draw(t, "far"), "km"},
			Numbers: rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "numbers"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			s.Parts = append(s.Parts,
				part{rapid.SampledFrom([]colour{"red", "green", "light-blue"}).Draw(t, "colour"),
					rapid.IntRange(0, math.MaxInt).Draw(t, "weight")})
		}
		if rapid.Bool().Draw(t, "perhaps") {
			s.Maybe = new(rapid.Float64Range(-1e300, 1e300).Draw(t, "maybe"))
		}
		return s
	})
}

func write(t *rapid.T, s *sample) []byte {
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode(text []byte, kubernetes bool) (s sample, err error) {
	doc, err := strictyaml.Parse(text, strictyaml.Options{File: "my.yaml", Kubernetes: kubernetes})
	if err == nil {
		err = append(doc.Root().Decode(&s), doc.Problems()...).Err()
	}
	return s, err
}

// What the YAML library writes of a struct is read back as it was, also by the
// rules of older YAML.
func TestWhatIsWrittenReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := samples().Draw(t, "sample")
		text := write(t, &s)
		if yaml.Unmarshal(text, new(yaml.Node)) != nil {
			t.Skip("the library does not read some texts of its own, such as a tab on a line of its own")
		}
		if s.Maybe == nil { // which the library writes as null
			text = bytes.Replace(text, []byte("maybe: null\n"), nil, 1)
		}
		for _, kubernetes := range []bool{false, true} {
			got, err := decode(text, kubernetes)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if d := cmp.Diff(s, got, cmp.AllowUnexported(common{}, sample{}, metres{}), cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(metres{}, "unit"),
				cmpopts.IgnoreFields(sample{}, "At", "Raw")); d != "" {
				t.Fatalf("(-written +read)\n%s\n%s", d, text)
			}
		}
	})
}

// A file with one spoiled leaf has exactly one mistake, at that leaf.
func TestASpoiledLeafIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := samples().Draw(t, "sample")
		s.Name, s.Numbers, s.Maybe = "n", map[string]int{"x": 1}, new(1.5)
		var doc yaml.Node
		if err := yaml.Unmarshal(write(t, &s), &doc); err != nil {
			t.Fatal(err)
		}
		type leaf struct {
			node *yaml.Node
			path string
		}
		var leaves []leaf
		var walk func(n *yaml.Node, path string)
		walk = func(n *yaml.Node, path string) {
			switch n.Kind {
			case yaml.MappingNode:
				for i := 0; i < len(n.Content); i += 2 {
					walk(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."))
				}
			case yaml.SequenceNode:
				for i, c := range n.Content {
					walk(c, path+"["+string(rune('0'+i))+"]")
				}
			default:
				leaves = append(leaves, leaf{n, path})
			}
		}
		walk(doc.Content[0], "")
		x := rapid.SampledFrom(leaves).Draw(t, "leaf")
		x.node.Tag, x.node.Style = "", 0
		x.node.Value = rapid.SampledFrom([]string{"[spoiled]", "{spoiled: b}", "!!binary spoiled", "2000-01-01"}).Draw(
			t, "instead")
		text, err := yaml.Marshal(&doc)
		if err != nil {
			t.Fatal(err)
		}
		// the library puts it in quotes
		text = bytes.Replace(text, []byte("'"+x.node.Value+"'"), []byte(x.node.Value), 1)
		line := 1 + bytes.Count(text[:bytes.Index(text, []byte(x.node.Value))], []byte("\n"))
		_, err = decode(text, false)
		var problems strictyaml.Problems
		errors.As(err, &problems)
		if len(problems) != 1 || problems[0].Line != line || problems[0].Path != x.path {
			t.Fatalf("%s on line %d of\n%s\n%v", x.path, line, text, err)
		}
	})
}

// Any bytes are read without a panic, and an excerpt says what its value says,
// from the same line on.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a: &a [*a]", "a: {b: c}\n---\n- x",
		"<<: [{a: 1}, {b: 2}]\nc:\n  d: |\n    e: f\n\n   # g\n  h: i", "name: 1\nparts: [{}]\nraw: ~",
		"a:\n    b: \"c\n      d\"\n    e: 'x'"} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, kubernetes bool) {
		doc, err := strictyaml.Parse(text,
			strictyaml.Options{File: "my.yaml", Kubernetes: kubernetes, Many: true, WarnUnknown: kubernetes})
		if err != nil {
			return
		}
		for _, v := range append(doc.Values, doc.Root()) {
			var s sample
			for _, p := range append(v.Decode(&s), v.Fold().Decode(&s)...) {
				if p.Line < 1 || p.Found == "" {
					t.Errorf("%+v", p)
				}
			}
			_ = read(v)
			v.CheckKeys()
		}
		if len(doc.Values) != 1 || !doc.Root().IsMapping() || len(doc.Problems()) > 0 {
			return
		}
		for _, p := range doc.Root().Pairs() {
			if !p.IsMapping() {
				continue
			}
			again, err := strictyaml.Parse(p.Excerpt(), strictyaml.Options{Kubernetes: kubernetes})
			if err != nil {
				t.Fatalf("%s: %v\n%s", p.Name, err, p.Excerpt())
			}
			if got := again.Root(); !cmp.Equal(got.Any(), p.Any(), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()) ||
				got.Line() != p.Line() {
				t.Fatalf("%s on line %d: %v, excerpt on line %d: %v\n%s", p.Name, p.Line(), p.Any(), got.Line(),
					got.Any(), p.Excerpt())
			}
		}
	})
}
