package archtest

import (
	"go/ast"
	"go/token"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A driver decides nothing. It names no status code, finish reason, drop reason or outcome; it only passes on those
// of the core.
func TestDriversDecideNothing(t *testing.T) {
	words := decisionWords(t)
	used := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || ast.IsGenerated(f.ast) ||
			!slices.ContainsFunc(Drivers, func(dir string) bool { return below(f.dir, dir) }) {
			continue
		}
		f.decisions(words, func(at, kind, what string) {
			key := f.path + " " + kind
			if DriverExceptions[key] == "" {
				t.Errorf("%s: a driver names a %s, %s: let the core decide it, or give the reason in DriverExceptions",
					at, kind, what)
			}
			used[key] = true
		})
	}
	for key, reason := range DriverExceptions {
		if !used[key] {
			t.Errorf("the exception %q (%s) is not needed", key, reason)
		}
	}
}

// The rule finds violations and nothing else.
func TestDriverRuleBites(t *testing.T) {
	words := decisionWords(t)
	for code, want := range map[string]string{
		`w.WriteHeader(http.StatusTeapot)`:                     "status",
		`fail(codes.Internal)`:                                 "status",
		`respond(503, "")`:                                     "status",
		`_ = Answer{Status: 404}`:                              "status",
		`if d.Status == 429 { }`:                               "status",
		`_ = errors.New("status 503")`:                         "status",
		`status := "404 Not Found"`:                            "status",
		`finish(record.Left)`:                                  "outcome",
		`finish("timed_out")`:                                  "outcome",
		`_ = openai.FinishLength`:                              "finish reason",
		`_ = modelserver.FinishCacheThreshold`:                 "finish reason",
		`c.FinishReason = "abort"`:                             "finish reason",
		`_ = flowcontrol.ReasonSaturated`:                      "drop reason",
		`refuse("rejected-no-endpoints")`:                      "drop reason",
		`refuse("cache_threshold")`:                            "finish reason",
		`http.Error(w, "no", http.StatusForbidden)`:            "status",
		`_ = status.Error(codes.Aborted, text)`:                "status",
		`if resp.StatusCode != http.StatusOK { }`:              "",
		`_ = http.StatusText(code)`:                            "",
		`time.Sleep(500 * time.Millisecond)`:                   "",
		`buf := make([]byte, 512)`:                             "",
		`s.log.Warn("left", "error", err)`:                     "",
		`_ = slog.String("error", err.Error())`:                "",
		`_ = map[string]string{"error": text}`:                 "",
		`finish(record.OutcomeOfStatus(status))`:               "",
		`var o record.Outcome; _ = strings.Join(nil, "stop ")`: "",
	} {
		var got []string
		fragment(t, code).decisions(words, func(_, kind, _ string) { got = append(got, kind) })
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: found %q, expected %q", code, got, want)
		}
	}
}

// decisionWords returns the constants of the core that only the core may name. The keys are "package.Name" and the
// constant's text, the values are its kind.
func decisionWords(t *testing.T) map[string]string {
	t.Helper()
	words, found := map[string]string{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || !below(f.dir, "core") {
			continue
		}
		for _, decl := range f.ast.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, spec := range general.Specs {
				v := spec.(*ast.ValueSpec)
				for i, value := range v.Values {
					lit, ok := value.(*ast.BasicLit)
					if !ok || lit.Kind != token.STRING {
						continue
					}
					for _, d := range Decisions {
						if !d.Holds(f.dir, v.Names[i].Name, typeName(v.Type)) {
							continue
						}
						text, _ := strconv.Unquote(lit.Value)
						words[f.ast.Name.Name+"."+v.Names[i].Name], words[strconv.Quote(text)] = d.Kind, d.Kind
						found[d.Kind] = true
					}
				}
			}
		}
	}
	for _, d := range Decisions {
		if !found[d.Kind] {
			t.Fatalf("the core has no constant that is a %s; Decisions in rules_test.go is out of date", d.Kind)
		}
	}
	return words
}

// typeName returns the last name of a type: FinishReason for openai.FinishReason.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

var statusText = regexp.MustCompile(`^(?:status )?([45]\d\d)\b`)

// isStatus reports whether a number is an HTTP error status.
func isStatus(digits string) bool {
	n, err := strconv.Atoi(digits)
	return err == nil && n >= 400 && http.StatusText(n) != ""
}

// decisions calls a function for every place in a file that names a decision of the core. Success statuses (the
// default), a log's attributes, names of JSON fields and ordinary numbers are not decisions.
func (f *file) decisions(words map[string]string, each func(at, kind, what string)) {
	meant := map[ast.Node]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if meant[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field: // a field's types and tag
			return false
		case *ast.KeyValueExpr:
			if _, ok := n.Key.(*ast.BasicLit); ok {
				meant[n.Key] = true
			}
		case *ast.BinaryExpr:
			if slices.Contains([]token.Token{token.MUL, token.QUO, token.SHL, token.ADD, token.SUB}, n.Op) {
				for _, side := range []ast.Expr{n.X, n.Y} {
					if l, ok := side.(*ast.BasicLit); ok && l.Kind == token.INT {
						meant[side] = true
					}
				}
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && logs(s) {
				for _, a := range n.Args {
					if _, text := a.(*ast.BasicLit); text {
						meant[a] = true
					}
				}
			}
		case *ast.SelectorExpr:
			pkg, _ := n.X.(*ast.Ident)
			switch {
			case pkg == nil:
			case words[pkg.Name+"."+n.Sel.Name] != "":
				each(f.at(n), words[pkg.Name+"."+n.Sel.Name], pkg.Name+"."+n.Sel.Name)
			case pkg.Name == "http" && strings.HasPrefix(n.Sel.Name, "Status") && n.Sel.Name != "StatusText" &&
				n.Sel.Name != "StatusOK",
				pkg.Name == "codes" && n.Sel.Name != "Code" && n.Sel.Name != "OK":
				each(f.at(n), "status", pkg.Name+"."+n.Sel.Name)
			}
		case *ast.BasicLit:
			text, _ := strconv.Unquote(n.Value)
			m := statusText.FindStringSubmatch(text)
			switch {
			case n.Kind == token.INT && isStatus(n.Value), n.Kind == token.STRING && m != nil && isStatus(m[1]):
				each(f.at(n), "status", n.Value)
			case n.Kind == token.STRING && words[strconv.Quote(text)] != "":
				each(f.at(n), words[strconv.Quote(text)], n.Value)
			}
		}
		return true
	})
}

// logs reports whether a call writes to a log, or makes an attribute for one.
func logs(s *ast.SelectorExpr) bool {
	if pkg, ok := s.X.(*ast.Ident); ok && (pkg.Name == "slog" || pkg.Name == "http" || pkg.Name == "status") {
		return pkg.Name == "slog"
	}
	return slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, s.Sel.Name)
}
