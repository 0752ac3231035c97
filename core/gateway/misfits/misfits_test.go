package misfits

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// "of" reads manifests and prints the misfits.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s := &gateway.Set{}
			if err := s.Add("m.yaml", []byte(d.Input)); err != nil {
				t.Fatal(err)
			}
			if p := gateway.Build(s, gateway.Options{Supply: true}); p.Mistakes != nil {
				t.Fatal(p.Mistakes)
			}
			if notes := Of(s); len(notes) > 0 {
				return strings.Join(notes, "\n") + "\n"
			}
			return "none\n"
		})
	})
}
