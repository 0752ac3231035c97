package picker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// A plug-in that implements any interface that the picker calls is of a kind:
// otherwise a good one would be refused.
func TestEveryInterfaceIsAKind(t *testing.T) {
	known := map[string]bool{}
	for _, k := range kinds {
		if k.iface != nil {
			known[k.iface.Name()] = true
		}
	}
	for name, why := range map[string]string{
		"StateKeeper":    "what is kept belongs to another kind",
		"DecisionKeeper": "what is kept belongs to another kind",
		"PrefixReader":   "prepares what another kind compares",
		"AnswerReader":   "is a Querier",
	} {
		if known[name] {
			t.Errorf("%s is a kind; the exception says: %s", name, why)
		}
		known[name] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "plugin.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		iface, ok := spec.Type.(*ast.InterfaceType)
		if !ok || spec.Name.Name == "Plugin" {
			return true
		}
		for _, m := range iface.Methods.List {
			if embedded, is := m.Type.(*ast.Ident); is && embedded.Name == "Plugin" {
				if found++; !known[spec.Name.Name] {
					t.Errorf("%s is in no kind of kinds.go", spec.Name.Name)
				}
			}
		}
		return true
	})
	if found < 20 {
		t.Errorf("%d interfaces were found", found)
	}
}
