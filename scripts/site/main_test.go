package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository writes a small repository and returns its directory. changed replaces files.
func repository(t *testing.T, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"README.md":          "# Start\n\n![p](docs/p.png) [tour](docs/README.md#a-tour) [text](LICENSE)\n",
		"CHANGELOG.md":       "# Changelog\n\n[one](docs/one.md#twice-1)\n",
		"LICENSE":            "free",
		"examples/README.md": "# Examples\n\n[one](../docs/one.md)\n",
		"docs/README.md":     "# Documentation\n\n## A tour\n\n## Reference\n\n- [one](one.md): first\n",
		"docs/one.md":        "# One\n\n## Twice\n\n## Twice\n\n| a |\n|---|\n| [home](../README.md) |\n",
		"docs/p.png":         "picture",
	}
	for name, text := range changed {
		files[name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Links lead to the pages of the site, and to the repository's source for what the site does not have.
func TestSite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := write(repository(t, nil), out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"index.html":          {`href="docs/index.html#a-tour"`, `src="docs/p.png"`, source + "LICENSE", "<title>Start"},
		"CHANGELOG.html":      {`href="docs/one.html#twice-1"`},
		"examples/index.html": {`href="../docs/one.html"`, `aria-current="page">Examples`},
		"docs/one.html":       {`id="twice-1"`, `<a href="../index.html">home`, "<h2>Reference</h2>"},
		"docs/p.png":          {"picture"},
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Error(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s lacks %s:\n%s", name, w, text)
			}
		}
	}
}

// Each mistake has the line where it is, and no site is written.
func TestMistakes(t *testing.T) {
	dir := repository(t, map[string]string{
		"README.md":    "# Start\n\n[a\nb](docs/none.md) and\n[c](docs/one.md#three)\n",
		"docs/two.md":  "# Two\n",
		"CHANGELOG.md": "# Changelog\n\n- a\n- ![`x`](x.png)\n",
	})
	out := filepath.Join(t.TempDir(), "site")
	err := write(dir, out)
	if err == nil {
		t.Fatal("no mistake was found")
	}
	for _, want := range []string{
		"README.md:3: the link docs/none.md leads to no file",
		"README.md:5: the link docs/one.md#three leads to no heading of docs/one.md",
		"CHANGELOG.md:4: the link x.png leads to no file",
		"docs/README.md: docs/two.md is in no list",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q in:\n%v", want, err)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a site was written")
	}
}
