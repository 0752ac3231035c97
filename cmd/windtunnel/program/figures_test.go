package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/windtunnel/windtunnel"
	"github.com/windtunnel/windtunnel/internal/experiment"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// TestFiguresOfPages compares the figures of docs/claims.md with what the experiments measure, and with -update
// rewrites the page. By day a few play.
func TestFiguresOfPages(t *testing.T) {
	path := filepath.Join(repository, experiment.Page)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := experiment.All(windtunnel.Files)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		t.Run(e.Name, func(t *testing.T) {
			if !*update {
				t.Parallel()
				if !nightly.Each(i, 2) {
					t.Skip("make test-nightly runs it")
				}
			}
			if err := e.Link(nil, "", true, nil); err != nil { // the repository has no traces
				t.Fatal(err)
			}
			figures, err := e.Figures(page, !nightly.On())
			switch {
			case err != nil:
				t.Fatal(err)
			case len(figures) == 0:
				return
			case e.Needs == "xgboost":
				library(t)
			}
			if err := e.Measure(t.Context(), figures, plays(repository, nil), func() {}); err != nil {
				t.Fatal(err)
			}
			for _, f := range figures {
				switch {
				case f.Measured == f.Printed:
				case *update:
					t.Logf("%q: %s → %s", f.Section, f.Printed, f.Measured)
				default:
					t.Errorf("%s: %q prints %s; found %s for %s\n"+
						"Rewrite the page with: windtunnel experiment %s --write %[1]s",
						experiment.Page, f.Section, f.Printed, f.Measured, f.Expression, e.Name)
				}
			}
			if *update {
				page = experiment.Rewrite(page, figures)
			}
		})
	}
	if *update {
		if err := os.WriteFile(path, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
