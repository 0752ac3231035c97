package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// file is one parsed Go file of the repository.
type file struct {
	path string // relative to the repository's root
	dir  string
	test bool
	ast  *ast.File
	fset *token.FileSet
}

func (f *file) imports() []string {
	var out []string
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			out = append(out, path)
		}
	}
	return out
}

func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// calls calls a function for every use of another package's function or type, with the package's path and the name.
func (f *file) calls(each func(at, pkg, name string)) {
	names := map[string]string{}
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = path
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil && names[x.Name] != "" {
			each(f.at(s), names[x.Name], s.Sel.Name)
		}
		return true
	})
}

// source is every Go file of the repository, parsed once. Other modules (OtherModules) have their own libraries and
// layers.
var source = sync.OnceValues(func() ([]*file, error) {
	var out []*file
	err := walk(func(path string) error {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "/testdata/") ||
			slices.ContainsFunc(OtherModules, func(m string) bool { return strings.HasPrefix(path, m+"/") }) {
			return nil
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, filepath.Join(root, path), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, &file{path: path, dir: filepath.ToSlash(filepath.Dir(path)),
			test: strings.HasSuffix(path, "_test.go"), ast: parsed, fset: fset})
		return nil
	})
	return out, err
})

func goFiles(t *testing.T) []*file {
	t.Helper()
	files, err := source()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// walk visits every file of the repository, with its path relative to the root.
func walk(visit func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch skipped := slices.Contains(Skipped, d.Name()); {
		case d.IsDir() && skipped:
			return filepath.SkipDir
		case d.IsDir(), skipped: // .git is a file in a worktree
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel))
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// fragment returns a file with one function that contains the statements.
func fragment(t *testing.T, code string) *file {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, "fragment.go", "package p\nfunc _() { "+code+" }", 0)
	if err != nil {
		t.Fatal(err)
	}
	return &file{path: "fragment.go", ast: parsed, fset: fset}
}
