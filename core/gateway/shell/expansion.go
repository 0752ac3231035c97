package shell

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// Get implements expand.Environ.
func (s *shell) Get(name string) (v expand.Variable) {
	text := func(t string) expand.Variable { return expand.Variable{Set: true, Kind: expand.String, Str: t} }
	given := max(len(s.args)-1, 0)
	number, err := strconv.Atoi(name)
	switch {
	case name == "@" || name == "*":
		v = expand.Variable{Set: true, Kind: expand.Indexed, List: s.args[len(s.args)-given:]}
	case name == "#":
		v = text(strconv.Itoa(given))
	case name == "?" || name == "$" || name == "!" || name == "PPID":
		v = text("0")
	case strings.HasPrefix(name, "HOME "): // ~name
		v = text("/home/" + strings.TrimPrefix(name, "HOME "))
	case err == nil && number >= 0 && number < len(s.args):
		v = text(s.args[number])
	default:
		v = s.vars[name]
	}
	s.read += len(v.Str)
	for _, x := range v.List {
		s.read += len(x) + 1
	}
	if s.read > maxRead {
		s.err = cmp.Or(s.err, fmt.Errorf("its script expands to more than %d bytes: shorten its variables", maxRead))
		return expand.Variable{}
	}
	return v
}

// Each implements expand.Environ.
func (s *shell) Each(visit func(name string, v expand.Variable) bool) {
	for _, name := range slices.Sorted(maps.Keys(s.vars)) {
		if !visit(name, s.Get(name)) {
			return
		}
	}
}

// Set implements expand.WriteEnviron.
func (s *shell) Set(name string, v expand.Variable) error {
	v.Exported = v.Exported || s.vars[name].Exported
	s.vars[name] = v
	return nil
}

func (s *shell) set(name, value string) {
	_ = s.Set(name, expand.Variable{Set: true, Kind: expand.String, Str: value}) // Set returns no error
}

// substitute replaces a command substitution by nothing.
func (s *shell) substitute(_ io.Writer, n *syntax.CmdSubst) error {
	var text strings.Builder
	word := &syntax.Word{Parts: []syntax.WordPart{n}}
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&text, word); err != nil {
		return err
	}
	s.notes = append(s.notes,
		fmt.Sprintf("its script, line %d: %.60s is empty: no program runs here", n.Pos().Line(), text.String()))
	return nil
}

// fields expands words to the arguments of a command.
func (s *shell) fields(words []*syntax.Word) []string {
	for _, w := range words {
		if split := *w; syntax.SplitBraces(&split) {
			s.fail(w, "braces that stand for several words; expected the words, or quotes")
			return nil
		}
	}
	out, err := expand.Fields(s.config, words...)
	if err != nil && len(words) > 0 {
		s.fail(words[0], "%w", err)
	}
	return out
}

// literal expands a word to the value of a variable.
func (s *shell) literal(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	out, err := expand.Literal(s.config, w)
	if err != nil {
		s.fail(w, "%w", err)
	}
	return out
}

// declare sets a declaration's variable, and exports it where the declaration does.
func (s *shell) declare(variant string, a *syntax.Assign) {
	if a.Name == nil {
		return // an option
	}
	if name := a.Name.Value; variant == "export" {
		v := s.vars[name]
		v.Exported = true
		s.vars[name] = v
	}
	if !a.Naked {
		s.assign(a)
	}
}

func (s *shell) assign(a *syntax.Assign) {
	v := expand.Variable{Set: true, Kind: expand.String, Str: s.literal(a.Value)}
	if a.Array != nil {
		v.Kind = expand.Indexed
		for _, e := range a.Array.Elems {
			if e.Value != nil {
				v.List = append(v.List, s.fields([]*syntax.Word{e.Value})...)
			}
		}
	}
	if a.Append {
		old := s.Get(a.Name.Value)
		v.Str, v.List = old.Str+v.Str, append(slices.Clone(old.List), v.List...)
	}
	if a.Index == nil { // elements of arrays are ignored
		_ = s.Set(a.Name.Value, v) // Set returns no error
	}
}
