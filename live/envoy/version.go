package envoy

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Version is a release of Envoy.
type Version struct{ Major, Minor, Patch int }

// MinVersion is the oldest release whose ext_proc filter keeps a request body
// open in FULL_DUPLEX_STREAMED mode the way the held flow needs (measured on
// 1.36.4 and 1.40.0).
var MinVersion = Version{1, 36, 0}

// String is the version as Envoy writes it, such as 1.40.0.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// AtLeast says whether v is w or newer.
func (v Version) AtLeast(w Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch)) >= 0
}

// versionLine is the shape of the answer to --version:
//
//	envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL
//
// A development build writes 1.41.0-dev.
var versionLine = regexp.MustCompile(`version:\s*[^/\s]*/(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:-[\w.]+)?/`)

// ParseVersion reads what `envoy --version` prints.
func ParseVersion(output string) (Version, error) {
	m := versionLine.FindStringSubmatch(output)
	if m == nil {
		return Version{}, fmt.Errorf("not the answer of envoy --version: expected a line like "+
			"\"envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL\", got %q", clip(output, 200))
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // at most four digits each
	}
	return Version{n[0], n[1], n[2]}, nil
}

// askVersion runs the binary once. A binary that hangs is given up on.
func askVersion(ctx context.Context, path string) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second // a script's own child may hold the pipe
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w%s", path, err, indented(out))
	}
	return ParseVersion(string(out))
}

// clip keeps foreign output in messages short.
func clip(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// indented is foreign output set apart below a message, or nothing.
func indented(out []byte) string {
	s := clip(string(out), 1000)
	if s == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(s, "\n", "\n    ")
}
