package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	columns = 120 // of a line; a tab has four
	fields  = 30  // of a struct
)

// A line fits on half a screen. Struct tags and raw strings cannot be broken.
func TestLinesAreShort(t *testing.T) {
	places := map[string][]string{}
	for _, f := range goFiles(t) {
		if ast.IsGenerated(f.ast) {
			continue
		}
		whole := map[int]bool{} // lines with tags and raw strings
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && l.Value[0] == '`' {
				for i := f.fset.Position(l.Pos()).Line; i <= f.fset.Position(l.End()).Line; i++ {
					whole[i] = true
				}
			}
			return true
		})
		data, err := os.ReadFile(filepath.Join(root, f.path))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > columns && !whole[i+1] &&
				!strings.HasPrefix(strings.TrimSpace(line), "//go:") {
				places[f.dir] = append(places[f.dir], f.path+":"+strconv.Itoa(i+1)+": "+strconv.Itoa(n)+" columns")
			}
		}
	}
	ratchet(t, "columns", places, "break the line at 120 columns, where a tab has four")
}

// A struct with many fields is divided into types with names of their own, unless it is one documented format. The
// numbers in testdata/structs.txt are fields beyond the limit.
func TestStructsAreSmall(t *testing.T) {
	places, formats := map[string][]string{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || ast.IsGenerated(f.ast) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok || s.Fields.NumFields() <= fields {
				return true
			}
			key := f.dir + "." + spec.Name.Name
			if LargeFormats[key] != "" {
				formats[key] = true
				return true
			}
			for range s.Fields.NumFields() - fields {
				places[key] = append(places[key], f.at(spec))
			}
			return true
		})
	}
	for key, reason := range LargeFormats {
		if !formats[key] {
			t.Errorf("the exception %q (%s) is not needed", key, reason)
		}
	}
	ratchet(t, "structs", places, "give a family of the struct's fields a type of its own")
}
