package modelserver

import (
	"slices"
	"testing"
)

// A header by which a model server does something else keeps requests from being direct.
func TestActing(t *testing.T) {
	t.Parallel()
	ReadHead(func(name string) string {
		if names := name == "X-Request-Id" || name == "Traceparent"; names == slices.Contains(Acting, name) {
			t.Errorf("%s acts: %v", name, !names)
		}
		return ""
	})
}
