package lab

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/internal/files"
)

// exec runs one of the programs that document 003 runs in pods.
func (k *Kubectl) exec(ctx context.Context, p pod) error {
	program := ""
	if len(k.command) > 0 {
		program = k.command[0]
	}
	switch program {
	case "curl":
		return k.curl(ctx, p, k.command[1:])
	case "nvidia-smi":
		return NvidiaSMI(ctx, k.Out, []pod{p}, k.command[1:])
	case "netstat":
		return k.netstat(p, strings.Join(k.command[1:], ""))
	case "printenv", "env":
		return k.printenv(p)
	}
	return fmt.Errorf("exec: found %q, expected a program that document 003 runs in pods, after --: curl, netstat, "+
		"nvidia-smi or printenv", program)
}

// maxAnswer limits the answer that curl prints, in bytes.
const maxAnswer = 64 << 20

// curl gets a URL as from inside a pod: at localhost, its own ports answer.
func (k *Kubectl) curl(ctx context.Context, p pod, args []string) error {
	method, body, target := http.MethodGet, "", ""
	head := http.Header{}
	for i := 0; i < len(args); i++ {
		next := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch args[i] {
		case "-d", "--data":
			method, body = http.MethodPost, next()
		case "-X", "--request":
			method = next()
		case "-H", "--header":
			name, value, _ := strings.Cut(next(), ":")
			head.Set(name, strings.TrimSpace(value))
		case "-m", "--max-time":
			next()
		default:
			if !strings.HasPrefix(args[i], "-") {
				target = args[i]
			}
		}
	}
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return fmt.Errorf("curl: found %q, expected a URL such as localhost:8001/metrics", target)
	}
	number, host := u.Port(), u.Hostname()
	number = cmp.Or(number, "80")
	at := k.reach(p, host, number)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	to := *u
	to.Host = at
	req, err := http.NewRequestWithContext(ctx, method, to.String(), strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("curl: %w", err)
	}
	req.Header, req.Host = head, u.Host
	resp, err := get(req)
	if err != nil {
		fmt.Fprintf(k.Err, "curl: (7) Failed to connect to %s port %s: %s\n", host, number, cause(err))
		return ExitError(7)
	}
	defer resp.Body.Close()
	_, err = io.Copy(k.Out, io.LimitReader(resp.Body, maxAnswer))
	return err
}

// cause returns the innermost error, which names no address of this machine.
func cause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

// reach returns the address at which a pod reaches a host's port.
func (k *Kubectl) reach(p pod, host, number string) string {
	at := net.JoinHostPort(host, number)
	ip, err := netip.ParseAddr(host)
	if host != "localhost" && (err != nil || ip != netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
		return at
	}
	if to := p.ports[number]; to != "" {
		return to
	}
	return net.JoinHostPort(p.ip, number)
}

// printenv prints the environment of a pod's container.
func (k *Kubectl) printenv(p pod) error {
	if p.workload == nil {
		return nil
	}
	for i := range p.workload.Containers {
		c := &p.workload.Containers[i]
		if k.container != "" && c.Name != k.container || k.container == "" && i > 0 {
			continue
		}
		x, err := c.Process(gateway.Place{IP: p.ip, Name: p.name, Namespace: p.namespace})
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(x.Env)) {
			fmt.Fprintf(k.Out, "%s=%s\n", name, x.Env[name])
		}
	}
	return nil
}

// netstat prints a pod's sockets: from the kernel's table where the pod has an address of its own, otherwise the ports
// on which it listens.
func (k *Kubectl) netstat(p pod, flags string) error {
	fmt.Fprintln(k.Out, "Proto Local Address           Foreign Address         State")
	row := func(local, remote, state string) {
		if state == "LISTEN" || strings.Contains(flags, "a") {
			fmt.Fprintf(k.Out, "tcp   %-23s %-23s %s\n", local, remote, state)
		}
	}
	ip, err := netip.ParseAddr(p.ip)
	table, unread := files.Read("/proc/net/tcp", 16<<20)
	if err != nil || unread != nil || ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		for _, number := range slices.Sorted(maps.Keys(p.ports)) {
			row(net.JoinHostPort(p.ip, number), "0.0.0.0:*", "LISTEN")
		}
		return nil
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		local, remote := socket(fields[1]), socket(fields[2])
		switch {
		case local.Addr() != ip:
		case fields[3] == "0A":
			row(local.String(), "0.0.0.0:*", "LISTEN")
		case fields[3] == "01":
			row(local.String(), remote.String(), "ESTABLISHED")
		}
	}
	return nil
}

// socket reads an address of the kernel's table: the bytes of the address in the machine's order, then the port.
func socket(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	n, bad := strconv.ParseUint(port, 16, 16)
	if err != nil || bad != nil || len(b) != 4 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]}), uint16(n))
}

// fetchPage reads a metrics page.
func fetchPage(ctx context.Context, at string) (metrics.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := get(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, metrics.MaxPageBytes))
	if err != nil {
		return nil, err
	}
	return metrics.ParseSeries(text, func(string) bool { return true })
}

// forward copies connections from a local port to a port of a pod until ctx ends.
func (k *Kubectl) forward(ctx context.Context) error {
	if len(k.args) != 2 {
		return fmt.Errorf("expected kubectl port-forward %s", verbs["port-forward"])
	}
	p, err := k.onePod()
	if err != nil {
		return err
	}
	local, remote, both := strings.Cut(k.args[1], ":")
	if !both {
		remote = local
	}
	to := p.ports[remote]
	if to == "" {
		return fmt.Errorf("port %q: expected a port on which pod %s listens: %s", remote, p.name,
			strings.Join(slices.Sorted(maps.Keys(p.ports)), ", "))
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", local))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(k.Out, "Forwarding from %s -> %s\n", l.Addr(), remote)
	for {
		from, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go relay(ctx, from, to)
	}
}

func relay(ctx context.Context, from net.Conn, to string) {
	defer from.Close()
	at, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return // the client sees that the connection ends
	}
	defer at.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); at.Close() })()
	go func() {
		_, _ = io.Copy(at, from) // the other direction ends the connection
	}()
	_, _ = io.Copy(from, at) // as above
}
