package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every import inside the repository follows the layers.
func TestLayers(t *testing.T) {
	for _, f := range goFiles(t) {
		layer := layerOf(f.dir)
		if layer == nil {
			t.Errorf("%s: %s belongs to no layer; add it to one in rules_test.go", f.path, f.dir)
			continue
		}
		for _, path := range f.imports() {
			to, inside := strings.CutPrefix(path, Module)
			if reason := TestHelpers[to]; reason != "" {
				if !f.test && to != f.dir {
					t.Errorf("%s: %s is for tests only: %s", f.path, to, reason)
				}
				continue
			}
			if !inside || to == f.dir || mayImport(layer, f.dir, to) {
				continue
			}
			key := f.dir + " " + to
			if ImportExceptions[key] != "" || (f.test && TestImportExceptions[key] != "") {
				continue
			}
			t.Errorf("%s: %s imports %s, and may not: %s", f.path, f.dir, to, layer.Reason)
		}
	}
}

// windtunnel has none of Kubernetes' libraries, which are large: another program speaks to API servers.
func TestNoKubernetesLibraries(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/windtunnel")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(out))
	if !slices.Contains(list, strings.TrimSuffix(Module, "/")+"/cmd/windtunnel") {
		t.Fatalf("go list -deps lists %d packages without the program itself", len(list))
	}
	for _, path := range list {
		if name := strings.TrimPrefix(path, "sigs."); strings.HasPrefix(name, "k8s.io/") && name != "k8s.io/yaml" {
			t.Errorf("windtunnel is built of %s; only the module kubernetes may use it", path)
		}
	}
}

func layerOf(dir string) *Layer {
	for i := range Layers {
		if below(dir, Layers[i].Dir) {
			return &Layers[i]
		}
	}
	return nil
}

func mayImport(l *Layer, from, to string) bool {
	if slices.ContainsFunc(l.May, func(dir string) bool { return below(to, dir) }) {
		return true
	}
	// A package's own subpackages are never siblings.
	return below(to, l.Dir) && (l.Siblings || below(to, from) || below(from, to))
}

// Exceptions that are no longer needed are removed.
func TestExceptionsAreNeeded(t *testing.T) {
	used := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, path := range f.imports() {
			used[f.dir+" "+strings.TrimPrefix(path, Module)] = true
		}
	}
	for _, list := range []map[string]string{ImportExceptions, TestImportExceptions, CorePackageExceptions} {
		for key, reason := range list {
			if !used[key] {
				t.Errorf("the exception %q (%s) is not needed", key, reason)
			}
		}
	}
}

// Tests of properties run fewer checks in make test, and rapid's usual number in make test-nightly.
func TestPropertiesAreShortByDay(t *testing.T) {
	const rapid, nightly = "pgregory.net/rapid", Module + "internal/nightly"
	checks, short := map[string]bool{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if imports := f.imports(); f.test {
			checks[f.dir] = checks[f.dir] || slices.Contains(imports, rapid)
			short[f.dir] = short[f.dir] || slices.Contains(imports, nightly)
		}
	}
	for dir := range checks {
		if checks[dir] && !short[dir] {
			t.Errorf("%s: its tests use %s and do not import %s, which sets how often", dir, rapid, nightly)
		}
	}
}

// Every machine of the core is in the contract's list.
func TestMachinesKeepTheContract(t *testing.T) {
	verbs, listed := map[string]int{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if f.path == "internal/contract/machines_test.go" {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok {
					name, _ := strconv.Unquote(l.Value)
					listed[name] = true
				}
				return true
			})
		}
		if !f.test && below(f.dir, "core") {
			f.verbs(verbs)
		}
	}
	if len(listed) == 0 {
		t.Fatal("internal/contract/machines_test.go lists no machine")
	}
	for name, n := range verbs {
		if n > 1 && !listed[name] {
			t.Errorf("%s is a machine that the contract does not check: add it to "+
				"internal/contract/machines_test.go", name)
		}
	}
}

// A machine is found however its methods are declared, also if it inherits one of them from an embedded type.
func TestMachinesAreFound(t *testing.T) {
	for code, want := range map[string]bool{
		"func (x *M) Input() {}\nfunc (x *M) Next() {}\nfunc (x *M) Advance() {}": true,
		"func (x M) Next() {}\nfunc (M) Advance() {}":                             true,
		"func (x *M[T]) Input() {}\nfunc (x M[T]) Advance() {}":                   true,
		"func (x *M[A, B]) Input() {}\nfunc (x *M[A, B]) Next() {}":               true,
		"func (x *M) Next() {}\nfunc (x *M) Reset() {}":                           false,
		"func (x *M) Input() {}\nfunc (x *N) Next() {}\nfunc Advance() {}":        false,
	} {
		parsed, err := parser.ParseFile(token.NewFileSet(), "fragment.go", "package p\n"+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		verbs := map[string]int{}
		(&file{dir: "core/p", ast: parsed}).verbs(verbs)
		if got := verbs["core/p.M"] > 1; got != want {
			t.Errorf("%s: a machine is %v, expected %v", code, got, want)
		}
	}
}

// verbs counts, by type, how many of a machine's three methods it has.
func (f *file) verbs(of map[string]int) {
	for _, d := range f.ast.Decls {
		m, ok := d.(*ast.FuncDecl)
		if !ok || m.Recv == nil || !slices.Contains([]string{"Input", "Next", "Advance"}, m.Name.Name) {
			continue
		}
		typ := m.Recv.List[0].Type
		if p, ok := typ.(*ast.StarExpr); ok {
			typ = p.X
		}
		switch generic := typ.(type) {
		case *ast.IndexExpr:
			typ = generic.X
		case *ast.IndexListExpr:
			typ = generic.X
		}
		if name, ok := typ.(*ast.Ident); ok {
			of[f.dir+"."+name.Name]++
		}
	}
}

// The core is pure: it has no clock, socket, file, goroutine or global random source.
func TestCoreIsPure(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || !below(f.dir, "core") {
			continue
		}
		for _, path := range f.imports() {
			if reason := coreMayNot(path); reason != "" && CorePackageExceptions[f.dir+" "+path] == "" {
				t.Errorf("%s: core imports %s, and may not: %s", f.path, path, reason)
			}
		}
		f.calls(func(at, pkg, name string) {
			if pkg == "time" && slices.Contains(CoreClock, name) {
				t.Errorf("%s: time.%s in the core; time is always passed in", at, name)
			}
		})
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a goroutine in the core; drivers have goroutines, machines have Next", f.at(n))
			case *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%s: a channel in the core; messages come in by Input and effects go out as values", f.at(n))
			}
			return true
		})
	}
}

func coreMayNot(path string) string {
	if strings.HasPrefix(path, Module) {
		return "" // the layers decide
	}
	if strings.Contains(strings.SplitN(path, "/", 2)[0], ".") {
		for module := range CoreModules {
			if below(path, module) {
				return ""
			}
		}
		return "it is not one of the small pure libraries that rules_test.go lists"
	}
	if CoreAllowed[path] != "" {
		return ""
	}
	for forbidden, reason := range CoreForbidden {
		if below(path, forbidden) {
			return reason
		}
	}
	return ""
}

// Only the command ends the process and writes to standard output, and nothing needs a C compiler.
func TestOutsideIsInTheCommand(t *testing.T) {
	for _, f := range goFiles(t) {
		if slices.Contains(f.imports(), "C") {
			t.Errorf("%s: needs a C compiler; windtunnel builds without cgo", f.path)
		}
		if f.test || below(f.dir, "cmd") || below(f.dir, "examples") || below(f.dir, "bench") ||
			below(f.dir, "scripts") {
			continue
		}
		f.calls(func(at, pkg, name string) {
			if reason := OnlyInCommand[pkg+"."+name]; reason != "" {
				t.Errorf("%s: %s.%s outside cmd: %s", at, pkg, name, reason)
			}
		})
	}
}

// Every package has exactly one package comment.
func TestEveryPackageHasOneDoc(t *testing.T) {
	docs, packages := map[string][]string{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		packages[f.dir] = true
		if f.ast.Doc == nil {
			continue
		}
		docs[f.dir] = append(docs[f.dir], f.path)
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(f.ast.Doc.Text(), want) {
			t.Errorf("%s: the package comment begins %.30q, expected %q", f.path, f.ast.Doc.Text(), want)
		}
	}
	for dir := range packages {
		if n := len(docs[dir]); n != 1 {
			t.Errorf("%s has %d package comments, expected one: %v", dir, n, docs[dir])
		}
	}
}

// A package stays small enough to find one's way in it.
func TestPackagesStaySmall(t *testing.T) {
	lines := map[string]int{}
	for _, f := range goFiles(t) {
		if !f.test && !ast.IsGenerated(f.ast) {
			lines[f.dir] += f.fset.File(f.ast.Pos()).LineCount() - 1 // the last line end starts another line
		}
	}
	for dir, n := range lines {
		if n > PackageLines {
			t.Errorf("%s has %d lines; expected at most %d: give a family of its files a package of its own, named "+
				"by what it holds", dir, n, PackageLines)
		}
	}
}

// Words that mark unfinished or private things appear nowhere.
func TestForbiddenWords(t *testing.T) {
	patterns := map[string]*regexp.Regexp{}
	for word := range ForbiddenWords {
		pattern := regexp.QuoteMeta(word)
		if regexp.MustCompile(`^\w+$`).MatchString(word) {
			pattern = `\b` + pattern + `\b`
		}
		patterns[word] = regexp.MustCompile(pattern)
	}
	err := walk(func(path string) error {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.Size() > 8<<20 {
			return err
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		if !utf8.Valid(data) { // a picture or a compressed recording
			return nil
		}
		for word, pattern := range patterns {
			if !bytes.Contains(data, []byte(word)) {
				continue
			}
			if at := pattern.FindIndex(data); at != nil && !wordMeant(path, word) {
				line := 1 + strings.Count(string(data[:at[0]]), "\n")
				t.Errorf("%s:%d: %q: %s", path, line, word, ForbiddenWords[word])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wordMeant(path, word string) bool {
	for key := range WordExceptions {
		file, w, _ := strings.Cut(key, " ")
		prefix, many := strings.CutSuffix(file, "*")
		if w == word && (file == path || (many && strings.HasPrefix(path, prefix))) {
			return true
		}
	}
	return false
}
