package cachedir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// installTimeout bounds a download of some 60 MB over a slow connection.
const installTimeout = 10 * time.Minute

// Installer is one way to install Python packages, with a tool that the user has.
type Installer struct {
	// Name is the beginning of its command line. Program is the tool's path, or "" if it is missing.
	Name, Program string
	Args          []string
}

// Install installs Python packages once, into Final, which is inside the directory Root of the cache.
type Install struct {
	Root, Final string
	// There reports whether Final can be used.
	There func(ctx context.Context) bool
	// Requirements are the packages, with their hashes.
	Requirements string
	// Installers are tried in order. Each installs the packages into dir.
	Installers func(dir, requirements string) []Installer
	// Take checks what an installer has put into dir, and returns the path of the directory that becomes Final.
	Take func(ctx context.Context, dir string) (string, error)
	// Begins is called before the download.
	Begins func()
}

// Run installs the packages. Several processes may call it at once: one downloads, the others wait. Final appears
// only after it is complete and checked.
func (x *Install) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if err := os.MkdirAll(x.Root, 0o755); err != nil {
		return fmt.Errorf("cannot create the cache directory: %w; set WINDTUNNEL_CACHE to a writable directory", err)
	}
	unlock, err := Lock(ctx, filepath.Join(x.Root, "install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if x.There(ctx) {
		return nil // another process was faster
	}
	dir, err := os.MkdirTemp(x.Root, ".install-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	requirements := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(requirements, []byte(x.Requirements), 0o600); err != nil {
		return err
	}
	x.Begins()
	if err := silentProxy(ctx); err != nil {
		return err
	}
	from, err := x.fetch(ctx, dir, requirements)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(x.Final), 0o755); err != nil {
		return err
	}
	return os.Rename(from, x.Final)
}

// proxyPatience bounds the time until a proxy answers a request that it can refuse by itself.
const proxyPatience = 3 * time.Second

// silentProxy returns an error if the proxy to the package index accepts a connection and answers nothing. An installer
// would wait for its own timeout, which users set to minutes for slow networks.
func silentProxy(ctx context.Context) error {
	proxy, err := url.Parse(os.Getenv("PIP_PROXY"))
	if err != nil || proxy.Host == "" {
		index := http.Request{URL: &url.URL{Scheme: "https", Host: "pypi.org"}}
		if proxy, err = http.ProxyFromEnvironment(&index); err != nil || proxy == nil || proxy.Scheme != "http" {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, proxyPatience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), "80")))
	if err != nil {
		return nil // the installer says why
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_, _ = fmt.Fprintf(c, "OPTIONS * HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", proxy.Host)
	if n, _ := c.Read(make([]byte, 1)); n > 0 || ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: the proxy %s (HTTPS_PROXY) accepts connections and answers nothing", ErrOffline,
		proxy.Host)
}

// fetch tries the installers one after another.
func (x *Install) fetch(ctx context.Context, dir, requirements string) (string, error) {
	var missing []string
	var failures []error
	into := filepath.Join(dir, "packages")
	for _, in := range x.Installers(into, requirements) {
		if in.Program == "" {
			missing = append(missing, strings.Fields(in.Name)[0])
			continue
		}
		if err := os.RemoveAll(into); err != nil {
			return "", err
		}
		cmd := exec.CommandContext(ctx, in.Program, in.Args...)
		cmd.WaitDelay = 2 * time.Second
		// The first value of a variable that is given twice counts less than the last: the user's own stand.
		cmd.Env = append([]string{"PIP_RETRIES=0", "PIP_DEFAULT_TIMEOUT=3", "UV_HTTP_RETRIES=0",
			"UV_HTTP_CONNECT_TIMEOUT=3"}, os.Environ()...)
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", in.Name, ctx.Err())
		}
		if err == nil {
			var from string
			if from, err = x.Take(ctx, into); err == nil {
				return from, nil
			}
		}
		if offline(out) {
			return "", fmt.Errorf("%s: %w: there is no network, or a proxy is missing (HTTPS_PROXY), or pip's own "+
				"index lacks the package", in.Name, ErrOffline)
		}
		failures = append(failures, fmt.Errorf("%s: %w%s", in.Name, err, indented(out)))
	}
	if len(failures) == 0 {
		return "", fmt.Errorf("none of %s is on PATH", strings.Join(missing, ", "))
	}
	return "", errors.Join(failures...)
}

// ErrOffline is the error of an installer that cannot reach the package index, or finds an index without the package.
// Other installers cannot do better.
var ErrOffline = errors.New("the package index cannot be reached")

// offline reports whether the output of pip or uv says that the network is missing. Without retries, pip does not say
// why it found no versions.
func offline(out []byte) bool {
	return slices.ContainsFunc([]string{"Failed to establish a new connection", "NameResolutionError", "ConnectTimeout",
		"Temporary failure in name resolution", "Network is unreachable", "dns error", "tcp connect error",
		"Cannot connect to proxy", "(from versions: none)",
	}, func(s string) bool { return strings.Contains(string(out), s) })
}

// indented returns a program's output, indented for an error.
func indented(out []byte) string {
	text := strings.TrimSpace(string(out))
	if text == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(text[:min(len(text), 1000)], "\n", "\n    ")
}
