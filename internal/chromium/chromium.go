// Package chromium gives tests a browser: the one that is installed, or one that is
// fetched once into windtunnel's cache and checked by its hash. Only tests use it.
package chromium

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/windtunnel/windtunnel/internal/cachedir"
)

// The npm packages that are fetched: a Chromium that needs no root to be installed
// (x86-64 Linux), and what finds mistakes in how a page can be used by everybody.
var (
	chromiumPackage = npmPackage{"@sparticuz/chromium", "153.0.0",
		"sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="}
	axePackage = npmPackage{"axe-core", "4.14.1",
		"sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="}
)

type npmPackage struct{ name, version, integrity string }

// Allocate starts a browser in the background when the context is first used
// (chromedp.NewContext). cancel ends it.
func Allocate(ctx context.Context) (context.Context, context.CancelFunc, error) {
	binary, libraries, fonts, err := find(ctx)
	if err != nil {
		return nil, nil, err
	}
	env := []string{"LANG=en_US.UTF-8"}
	if libraries != "" {
		env = append(env, "LD_LIBRARY_PATH="+libraries)
	}
	if fonts != "" {
		env = append(env, "FONTCONFIG_PATH="+fonts)
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(binary), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Env(env...), chromedp.Flag("headless", "shell"), chromedp.Flag("no-zygote", true),
		chromedp.Flag("accept-lang", "en-US"), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("hide-scrollbars", true)}
	if os.Getenv("CHROMIUM_LOG") != "" {
		options = append(options, chromedp.CombinedOutput(os.Stderr), chromedp.Flag("enable-logging", "stderr"))
	}
	allocated, cancel := chromedp.NewExecAllocator(ctx, options...)
	return allocated, cancel, nil
}

// Click clicks the first element of a CSS selector, or of an XPath that begins with //, as soon as it is on the page
// and nothing covers its middle. chromedp.Click sends the mouse to the place where it found the element, which a page
// that still loads may have moved by then.
func Click(selector string) chromedp.Action[bool] {
	return chromedp.Poll[bool](fmt.Sprintf(`((path) => {
		const e = path.startsWith("//")
			? document.evaluate(path, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue
			: document.querySelector(path);
		if (!e) return false;
		e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
		const box = e.getBoundingClientRect();
		const clientX = box.x + box.width / 2, clientY = box.y + box.height / 2;
		const top = document.elementFromPoint(clientX, clientY);
		if (!top || !e.contains(top)) return false;
		top.closest("a, button, input, [tabindex]")?.focus({preventScroll: true});
		top.dispatchEvent(new MouseEvent("click",
			{bubbles: true, cancelable: true, composed: true, view: window, detail: 1, clientX, clientY}));
		return true;
	})(%q)`, selector), chromedp.WithPollingTimeout(time.Minute))
}

// Shows waits until an element's visible text contains the words.
func Shows(selector, words string) chromedp.Action[bool] {
	return chromedp.Poll[bool](fmt.Sprintf(
		`(document.querySelector(%q)||{innerText:""}).innerText.includes(%q)`, selector, words),
		chromedp.WithPollingTimeout(time.Minute))
}

// Axe is the script of axe-core.
func Axe(ctx context.Context) (string, error) {
	dir, err := axePackage.fetch(ctx, asItIs)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "axe.min.js"))
	return string(text), err
}

// Package fetches another npm package, checks it by its hash, and returns its directory. Tests only read it.
func Package(ctx context.Context, name, version, integrity string) (string, error) {
	return npmPackage{name, version, integrity}.fetch(ctx, asItIs)
}

func asItIs(string, string) error { return nil }

// find is the browser: the one that CHROMIUM_PATH names, one on PATH, or the fetched
// one with its libraries and fonts.
func find(ctx context.Context) (binary, libraries, fonts string, err error) {
	if path := os.Getenv("CHROMIUM_PATH"); path != "" {
		return path, "", "", nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path := cachedir.LookPath(os.Getenv("PATH"), name); path != "" {
			return path, "", "", nil
		}
	}
	dir, err := chromiumPackage.fetch(ctx, unpackChromium)
	if err != nil {
		return "", "", "", fmt.Errorf(
			"no browser was found (CHROMIUM_PATH, PATH), and none could be fetched: %w; install chromium, or Node "+
				"with npm", err)
	}
	return filepath.Join(dir, "chromium"), filepath.Join(dir, "al2023", "lib"), filepath.Join(dir, "fonts"), nil
}

// fetch is where a package lies in the cache, checked and made ready.
func (p npmPackage) fetch(ctx context.Context, ready func(dir, to string) error) (string, error) {
	cache, err := cachedir.Dir(nil)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "npm", strings.NewReplacer("@", "", "/", "-").Replace(p.name)+"-"+p.version)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := cachedir.Lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	c := exec.CommandContext(ctx, "npm", "pack", "--silent", "--ignore-scripts", p.name+"@"+p.version)
	c.Dir = temporary
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack %s: %w\n%s", p.name, err, bytes.TrimSpace(out))
	}
	packed, err := filepath.Glob(filepath.Join(temporary, "*.tgz"))
	if err != nil || len(packed) != 1 {
		return "", errors.Join(fmt.Errorf("npm pack %s wrote %d packages, expected 1", p.name, len(packed)), err)
	}
	text, err := os.ReadFile(packed[0])
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(text); "sha512-"+base64.StdEncoding.EncodeToString(sum[:]) != p.integrity {
		return "", fmt.Errorf("%s %s is not what was expected: its hash is another", p.name, p.version)
	}
	made := filepath.Join(temporary, "made")
	if err := untar(packed[0], made, "--strip-components=1"); err != nil {
		return "", err
	}
	if err := ready(made, dir); err != nil {
		return "", err
	}
	return dir, os.Rename(made, dir)
}

// unpackChromium unpacks what is packed once more inside, in a directory that will
// be renamed.
func unpackChromium(dir, to string) error {
	for _, name := range []string{"chromium", "al2023.tar", "fonts.tar"} {
		from, plain := filepath.Join(dir, "bin", name+".br"), filepath.Join(dir, name)
		script := `const z=require("zlib"),` +
			`f=require("fs");f.createReadStream(process.argv[1]).pipe(z.createBrotliDecompress()).pipe(f.createWriteStream(process.argv[2],{mode:0o755}))`
		if out, err := exec.Command("node", "-e", script, from, plain).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", name, err, bytes.TrimSpace(out))
		}
		if base, ok := strings.CutSuffix(name, ".tar"); ok {
			if err := errors.Join(untar(plain, filepath.Join(dir, base)), os.Remove(plain)); err != nil {
				return err
			}
		}
	}
	// The package's own configuration has its fonts at a fixed place.
	fonts := filepath.Join(dir, "fonts")
	config := fmt.Sprintf(
		`<?xml version="1.0"?>
<fontconfig><dir>%[1]s</dir><dir>/usr/share/fonts</dir><cachedir>%[1]s/cache</cachedir></fontconfig>`, filepath.Join(to, "fonts", "fonts"))
	return errors.Join(os.WriteFile(filepath.Join(fonts, "fonts.conf"), []byte(config), 0o644),
		os.RemoveAll(filepath.Join(dir, "bin")))
}

// untar unpacks an archive, compressed or not, into a new directory.
func untar(archive, dir string, flags ...string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	args := append([]string{"--no-same-owner", "-xf", archive, "-C", dir}, flags...)
	if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", archive, err, bytes.TrimSpace(out))
	}
	return nil
}
