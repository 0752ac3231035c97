package report

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/flow.md explains every field of the summary and of its parts.
func TestSummaryIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/flow.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "### The summary")
	if !ok {
		t.Fatal("docs/flow.md has no section about the summary")
	}
	table, _, _ = strings.Cut(table, "\n### ")
	seen := 0
	var each func(x reflect.Type)
	each = func(x reflect.Type) {
		for x.Kind() == reflect.Pointer || x.Kind() == reflect.Slice {
			x = x.Elem()
		}
		if x.Kind() != reflect.Struct {
			return
		}
		for i := range x.NumField() {
			name, _, _ := strings.Cut(x.Field(i).Tag.Get("json"), ",")
			if seen++; !strings.Contains(table, "`"+name+"`") {
				t.Errorf("docs/flow.md does not explain the summary's field `%s` (%s.%s)", name, x.Name(),
					x.Field(i).Name)
			}
			each(x.Field(i).Type)
		}
	}
	each(reflect.TypeFor[Summary]())
	if seen < 30 {
		t.Fatalf("found %d fields", seen)
	}
}
