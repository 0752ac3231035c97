package jobs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
)

// maxFiles bounds what a ConfigMap takes, in bytes: less than 1 MiB, for its names and its metadata.
const maxFiles = 1_000_000

// filesAt is where pods see the files.
const filesAt = "/windtunnel/files"

// tree holds files as a pod sees them: at the same places relative to each other, and to the command's directory.
type tree struct {
	// Files are the contents, by slash-separated paths below filesAt.
	Files map[string][]byte
	// Dir is the command's directory in the pod.
	Dir string
	// Args are the command's arguments, in which absolute paths of files are those in the pod.
	Args []string
}

// gather reads the inputs of a command with these arguments in the directory dir, which is absolute.
func gather(dir string, args, inputs []string) (*tree, error) {
	root, paths := dir, []string{}
	for _, in := range inputs {
		abs := filepath.Clean(in)
		if !filepath.IsAbs(in) {
			abs = filepath.Join(dir, in)
		}
		if info, err := os.Stat(abs); err != nil || info.IsDir() { // a built-in scenario
			continue
		}
		paths = append(paths, abs)
		for !within(root, abs) {
			root = filepath.Dir(root)
		}
	}
	inPod := func(abs string) string {
		rel, err := filepath.Rel(root, abs)
		if err != nil { // both are absolute
			rel = abs
		}
		return path.Join(filesAt, filepath.ToSlash(rel))
	}
	t := &tree{Files: map[string][]byte{}, Dir: inPod(dir), Args: slices.Clone(args)}
	total := 0
	for _, p := range paths {
		text, err := files.Read(p, maxFiles)
		if total += len(text); err != nil || total > maxFiles {
			return nil, exit.Hint(exit.Input, fmt.Errorf("%s: the scenario's files are sent in a ConfigMap, which "+
				"takes %d bytes; expected fewer", p, maxFiles),
				"with a long trace, play on one machine, or on several "+
					"that share a directory (--share, docs/decide.md)")
		}
		t.Files[strings.TrimPrefix(inPod(p), filesAt+"/")] = text
		for i, a := range t.Args {
			flag, value, is := strings.Cut(a, "=")
			switch {
			case filepath.IsAbs(a) && filepath.Clean(a) == p:
				t.Args[i] = inPod(p)
			case is && strings.HasPrefix(flag, "--") && filepath.IsAbs(value) && filepath.Clean(value) == p:
				t.Args[i] = flag + "=" + inPod(p)
			}
		}
	}
	// The directory exists in the pod because of this file.
	t.Files[strings.TrimPrefix(path.Join(t.Dir, ".command"), filesAt+"/")] =
		[]byte("windtunnel " + strings.Join(t.Args, " ") + "\n")
	return t, nil
}

// within reports whether a path is below a directory.
func within(dir, file string) bool {
	rel, err := filepath.Rel(dir, file)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
