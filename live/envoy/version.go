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

// MinVersion is the oldest release whose ext_proc filter keeps a request body open in FULL_DUPLEX_STREAMED mode in the
// way that the held flow needs (measured on 1.36.4 and 1.40.0).
var MinVersion = Version{1, 36, 0}

// String returns the version as Envoy writes it, such as 1.40.0.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// AtLeast reports whether v is w or newer.
func (v Version) AtLeast(w Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch)) >= 0
}

// versionLine is the shape of the answer to --version:
//
//	envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL
//
// A development build writes 1.41.0-dev.
var versionLine = regexp.MustCompile(`version:\s*[^/\s]*/(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:-[\w.]+)?/`)

// ParseVersion parses the output of `envoy --version`.
func ParseVersion(output string) (Version, error) {
	m := versionLine.FindStringSubmatch(output)
	if m == nil {
		return Version{}, fmt.Errorf("not the answer of envoy --version: expected a line like "+
			"\"envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL\", got %q", clip(output, 200))
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // at most four digits each, so it never fails
	}
	return Version{n[0], n[1], n[2]}, nil
}

// askVersion runs the binary once. It gives up on a binary that hangs.
func askVersion(ctx context.Context, path string) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second // a script's child process may keep the pipe open
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w%s", path, err, indented(out))
	}
	return ParseVersion(string(out))
}

// clip shortens foreign output for messages.
func clip(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// indented returns foreign output as an indented block below a message, or "".
func indented(out []byte) string {
	s := clip(string(out), 1000)
	if s == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(s, "\n", "\n    ")
}
