package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/dependencies.md has one line for each module that the source imports, and none for modules that go.mod does
// not have.
func TestDependenciesAreDocumented(t *testing.T) {
	var required []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:require )?([\w.-]+\.[\w./-]+) v`).FindAllStringSubmatch(
		read(t, "go.mod"), -1) {
		required = append(required, m[1])
	}
	used := map[string]string{}
	for _, f := range goFiles(t) {
		for _, path := range f.imports() {
			if strings.HasPrefix(path, Module) || !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") {
				continue
			}
			if module := moduleOf(path, required); module != "" {
				used[module] = f.path
			}
		}
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(
		read(t, "docs/dependencies.md"), -1) {
		documented[m[1]] = true
	}
	for module, where := range used {
		if !documented[module] {
			t.Errorf("%s is imported (%s) and has no line in docs/dependencies.md; say what it is for", module, where)
		}
	}
	for module := range documented {
		if !slices.Contains(required, module) {
			t.Errorf("docs/dependencies.md has a line for %s, which go.mod does not have", module)
		}
	}
}

// moduleOf returns the longest required module path that contains a package.
func moduleOf(path string, required []string) string {
	best := ""
	for _, m := range required {
		if below(path, m) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// Each difference from the real parts has a reason.
func TestDifferencesHaveReasons(t *testing.T) {
	for _, file := range []string{"docs/parity.md", "docs/parity-sidecar.md"} {
		reasoned := false
		for i, line := range strings.Split(read(t, file), "\n") {
			switch {
			case !strings.HasPrefix(line, "|"):
				reasoned = false
			case strings.HasSuffix(line, "| why |"):
				reasoned = true
			case reasoned && strings.HasSuffix(strings.ReplaceAll(line, " ", ""), "||"):
				t.Errorf("%s:%d: a difference without a reason", file, i+1)
			}
		}
	}
}

// A test that a page names exists, and each policy in docs/gateway.md's table names one.
func TestNamedTestsExist(t *testing.T) {
	var pages []string
	tests, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	if err := walk(func(path string) error {
		switch {
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
				tests[m[1]] = true
			}
		case strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md"):
			pages = append(pages, path)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	named, rows := regexp.MustCompile("`(Test\\w+)`"), 0
	for _, page := range pages {
		tested := false // the table has a column of tests
		for i, line := range strings.Split(read(t, page), "\n") {
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				if !tests[m[1]] {
					t.Errorf("%s:%d: there is no test %s", page, i+1, m[1])
				}
			}
			switch {
			case !strings.HasPrefix(line, "|"):
				tested = false
			case strings.HasSuffix(line, "| test |"):
				tested = true
			case tested && !strings.HasPrefix(line, "|--"):
				cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
				if rows++; !named.MatchString(cells[len(cells)-1]) {
					t.Errorf("%s:%d: no test is named", page, i+1)
				}
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows with tests were found", rows)
	}
}

// docs/flow.md names every hop, step and outcome of core/record, and no other step.
func TestFlowIsDocumented(t *testing.T) {
	text := read(t, "docs/flow.md")
	known := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.dir != "core/record" || f.test {
			continue
		}
		for name, value := range stringConstants(f.ast) {
			known[value] = true
			if !strings.Contains(text, "`"+value+"`") {
				t.Errorf("docs/flow.md does not mention `%s` (record.%s)", value, name)
			}
		}
	}
	for _, m := range regexp.MustCompile(
		"(?m)^\\| `?(client|envoy|epp|sidecar|server)`? \\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(text, -1) {
		if !known[m[2]] {
			t.Errorf("docs/flow.md has a step `%s` at %s that core/record does not know", m[2], m[1])
		}
	}
}

// docs/flow.md explains every key of an event's details.
func TestDetailsAreDocumented(t *testing.T) {
	text := read(t, "docs/flow.md")
	where := map[string]string{}
	for _, f := range goFiles(t) {
		if f.test || f.dir == "core/record" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			if fun, ok := call.Fun.(*ast.SelectorExpr); !ok || fun.Sel.Name != "D" {
				return true
			}
			if key, ok := call.Args[0].(*ast.BasicLit); ok && key.Kind == token.STRING {
				if s, err := strconv.Unquote(key.Value); err == nil {
					where[s] = f.at(call)
				}
			}
			return true
		})
	}
	if len(where) == 0 {
		t.Fatal("found no details; the test looks for record.D(\"key\", …)")
	}
	keys := make([]string, 0, len(where))
	for key := range where {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if !strings.Contains(text, "`"+key+"`") {
			t.Errorf("docs/flow.md does not explain the detail `%s` (%s)", key, where[key])
		}
	}
}

// stringConstants returns a file's string constants by name.
func stringConstants(f *ast.File) map[string]string {
	out := map[string]string{}
	for _, decl := range f.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for i, value := range v.Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						out[v.Names[i].Name] = s
					}
				}
			}
		}
	}
	return out
}
