package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ProsePatterns are expressions that stop a native reader, each with a replacement. docs/style.md has the rules.
var ProsePatterns = []struct{ pattern, instead string }{
	{`\bforet(ell|old)`, `write "predict"`},
	{`\bfurnish`, `write "provide"`},
	{`\btired\b`, `write "idle", "stale" or "unused"`},
	{`\bto and fro\b`, `write "in both directions"`},
	{`\b(in|at) hand\b`, `write "held", "available" or "open"`},
	{`\bwhoever\b`, `name the actor: a client, a user, the caller`},
	{`\bsomebody\b`, `name the actor: a client, a user, another program`},
	{`\b(tell|tells|told)\b`, `write "report", "print", "name" or "return"`},
	{`\b(is|are|was) what\b`, `write subject, verb, object: "X does Y"`},
	{`\bof which\b`, `write two sentences`},
	{`\b(has|have) it\b`, `name what the part does: "as the document writes it"`},
	{`\bthe word of\b`, `write "the name of"`},
	{`\b(goes|go|went) on\b`, `write "continue" or "proceed"`},
	{`\bno more\b`, `write "no longer"`},
	{`\banew\b`, `write "again"`},
	{`\bthat of one\b`, `name the thing again: "the endpoint's load"`},
	{`\bis none of\b`, `write "is not one of"`},
	{`\b(comes|come|came) of\b`, `write "results from" or name the result`},
	{`\brooms\b`, `write "parts" or "processes"`},
	{`\balarms?\b`, `write "timer"`},
	{`\bnews\b`, `name it: an update, an event`},
	{`^Who [a-z]+s\b[^?]*$`, `name the actor: "A client that …"`},
}

// Texts that people read have none of these expressions, except those that testdata/prose.txt still allows a
// directory.
func TestProse(t *testing.T) {
	var patterns []*regexp.Regexp
	var all []string
	for _, p := range ProsePatterns {
		patterns, all = append(patterns, regexp.MustCompile(p.pattern)), append(all, p.pattern)
	}
	any := regexp.MustCompile(strings.Join(all, "|")) // one pass over the lines without a match
	places := map[string][]string{}
	look := func(dir, file string, line int, text string) {
		if !any.MatchString(text) {
			return
		}
		for i, p := range patterns {
			for _, found := range p.FindAllString(text, -1) {
				places[dir] = append(places[dir], file+":"+strconv.Itoa(line)+": "+strconv.Quote(found)+": "+
					ProsePatterns[i].instead)
			}
		}
	}
	for _, f := range goFiles(t) {
		if ast.IsGenerated(f.ast) || f.dir == "internal/archtest" {
			continue
		}
		f.read(func(at token.Pos, text string) {
			for i, line := range strings.Split(text, "\n") {
				look(f.dir, f.path, f.fset.Position(at).Line+i, line)
			}
		})
	}
	for _, p := range pages(t) {
		for i, line := range p.lines {
			if !p.code[i] && p.path != "docs/style.md" && !generatedPages[p.path] {
				look(path.Dir(p.path), p.path, i+1, unspoken.ReplaceAllString(line, "x"))
			}
		}
	}
	ratchet(t, "prose", places, "docs/style.md says how words are written")
}

// read calls a function for each text of a file that people read: comments and, outside tests, strings of several
// words (errors, help).
func (f *file) read(each func(at token.Pos, text string)) {
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			text := strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), " ")
			each(c.Pos(), text)
		}
	}
	if f.test {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
			each(l.Pos(), l.Value[1:len(l.Value)-1])
		}
		return true
	})
}

// The patterns find bad expressions and leave ordinary English alone.
func TestProsePatternsBite(t *testing.T) {
	for text, want := range map[string]bool{
		"Who leaves has left before others arrive":    true,
		"Who reads this?":                             false,
		"X is what does Y":                            true,
		"the scheduler predicts what a request costs": false,
		"as the document has it":                      true,
		"the endpoint's load":                         false,
	} {
		got := false
		for _, p := range ProsePatterns {
			got = got || regexp.MustCompile(p.pattern).MatchString(text)
		}
		if got != want {
			t.Errorf("%q: found is %v, expected %v", text, got, want)
		}
	}
}

var (
	nameWords = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
	textWords = regexp.MustCompile(`[\p{L}\p{N}]+`)
	smallWord = regexp.MustCompile(
		`^(s|a|an|the|is|are|of|for|to|in|and|or|its|it|this|that|returns|gets|sets|has|one)$`)
)

// repeats reports whether a comment has no words other than those of the name.
func repeats(name, comment string) bool {
	known := map[string]bool{strings.ToLower(name): true}
	for _, w := range nameWords.FindAllString(name, -1) {
		w = strings.ToLower(w)
		known[w], known[w+"s"], known[strings.TrimSuffix(w, "s")] = true, true, true
	}
	for _, w := range textWords.FindAllString(strings.ToLower(comment), -1) {
		if !known[w] && !smallWord.MatchString(w) {
			return false
		}
	}
	return strings.TrimSpace(comment) != ""
}

// A comment on an exported name adds to the name.
func TestCommentsSayMoreThanTheName(t *testing.T) {
	places := map[string][]string{}
	for _, f := range goFiles(t) {
		if f.test || ast.IsGenerated(f.ast) {
			continue
		}
		check := func(name *ast.Ident, context string, docs ...*ast.CommentGroup) {
			for _, doc := range docs {
				if doc != nil && name.IsExported() && repeats(context+name.Name, doc.Text()) {
					places[f.dir] = append(places[f.dir], f.at(doc)+": "+strings.TrimSpace(doc.Text()))
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				receiver := ""
				if n.Recv != nil && len(n.Recv.List) == 1 {
					if p, ok := n.Recv.List[0].Type.(*ast.StarExpr); ok {
						receiver = typeName(p.X)
					}
				}
				check(n.Name, receiver, n.Doc)
			case *ast.GenDecl:
				if s, ok := n.Specs[0].(*ast.TypeSpec); ok && len(n.Specs) == 1 {
					check(s.Name, "", n.Doc)
				}
			case *ast.TypeSpec:
				check(n.Name, "", n.Doc, n.Comment)
			case *ast.ValueSpec:
				check(n.Names[0], "", n.Doc, n.Comment)
			case *ast.Field:
				if len(n.Names) == 1 {
					check(n.Names[0], "", n.Doc, n.Comment)
				}
			}
			return true
		})
	}
	ratchet(t, "repeats", places, "a comment says why, or what the caller may rely on, never the name again")
}

func TestRepeatsBite(t *testing.T) {
	for _, c := range []struct {
		name, comment string
		want          bool
	}{
		{"ServerPort", "ServerPort is the server's port.", true},
		{"ServerPort", "ServerPort is the port of the server.", true},
		{"Seed", "the seed", true},
		{"Seed", "Seed draws all random values of a run.", false},
		{"Seed", "", false},
	} {
		if got := repeats(c.name, c.comment); got != c.want {
			t.Errorf("%s %q: repeats is %v, expected %v", c.name, c.comment, got, c.want)
		}
	}
}
