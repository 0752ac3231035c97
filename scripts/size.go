//go:build ignore

// Command size counts the production lines of the repository: lines with code in Go files that are neither tests nor
// generated. A line of more than 120 columns counts as the lines into which it breaks at 120. Arguments are
// directories.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const columns, tab = 120, 4

func main() {
	roots := os.Args[1:]
	if len(roots) == 0 {
		roots = []string{"."}
	}
	lines, files, total := map[string]int{}, 0, 0
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			n, err := count(path)
			if n > 0 {
				lines[filepath.Dir(path)] += n
				files++
			}
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for _, dir := range slices.SortedFunc(maps.Keys(lines), func(a, b string) int { return lines[b] - lines[a] }) {
		fmt.Printf("%7d %s\n", lines[dir], dir)
		total += lines[dir]
	}
	fmt.Printf("%7d in %d files of %d packages\n", total, files, len(lines))
}

// count returns the production lines of one file, or 0 for a generated one.
func count(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil || ast.IsGenerated(parsed) {
		return 0, err
	}
	file := fset.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	code := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		for i := range 1 + strings.Count(literal, "\n") {
			code[file.Line(pos)+i] = true
		}
	}
	n := 0
	for i, line := range strings.Split(string(text), "\n") {
		if code[i+1] {
			width := utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t")
			n += max(1, (width+columns-1)/columns)
		}
	}
	return n, nil
}
