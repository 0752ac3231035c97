package modelshape

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestCatalogueLines checks that the program knows every field, format and part that the catalogue names.
func TestCatalogueLines(t *testing.T) {
	n := 0
	for line := range strings.Lines(catalogue) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		d := json.NewDecoder(bytes.NewReader([]byte(line)))
		d.DisallowUnknownFields()
		var e entry
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
		if (e.Published != "") != (models[n].Quantization != nil) ||
			slices.Contains(e.Keeps, "attention") != (models[n].FourBitKeeps&Attention != 0) ||
			slices.Contains(e.Keeps, "feedForward") != (models[n].FourBitKeeps&FeedForward != 0) {
			t.Errorf("%s: found the format %q and the parts %q; expected known names", e.Name, e.Published, e.Keeps)
		}
		n++
	}
	if n != len(Names()) {
		t.Errorf("found %d lines; expected %d", n, len(Names()))
	}
}
