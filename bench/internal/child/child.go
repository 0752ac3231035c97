// Package child runs the measured code in processes of its own, so that its CPU time and memory are separate from the
// load generator's. Such a process is the benchmark's own binary, started with a role.
//
// A process prints its addresses on one line. It then answers every line on its standard input with its CPU time so
// far. It ends when its input is closed.
package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The role and its argument are passed to a process in these variables.
const roleVar, argVar = "WINDTUNNEL_BENCH_ROLE", "WINDTUNNEL_BENCH_ARG"

// profileVar names a directory into which every process writes a CPU profile, ROLE.PID.pprof.
const profileVar = "WINDTUNNEL_BENCH_PROFILES"

// Main is for TestMain. In a process with a role, it calls play to start the role's servers, and ends the process
// when its parent closes it. Otherwise it runs the benchmarks.
func Main(m *testing.M, play func(role, arg string) (addresses []string, err error)) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := serve(role, play); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(role string, play func(role, arg string) ([]string, error)) error {
	addresses, err := play(role, os.Getenv(argVar))
	if err != nil {
		return err
	}
	if dir := os.Getenv(profileVar); dir != "" {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s.%d.pprof", role, os.Getpid())))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println(strings.Join(addresses, " "))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	return in.Err()
}

// Process is a process with a role.
type Process struct {
	// Addresses are the addresses of its servers.
	Addresses []string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// Start starts a process with a role, and ends it with the benchmark.
func Start(b *testing.B, role, arg string) *Process {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := &Process{cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), roleVar+"="+role, argVar+"="+arg)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may be paused
		p.in.Close()
		_ = p.cmd.Wait()
	})
	p.Addresses = strings.Fields(p.line(b))
	return p
}

func (p *Process) line(b *testing.B) string {
	b.Helper()
	if !p.out.Scan() {
		b.Fatalf("the process ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// CPU returns the process's user and system time so far.
func (p *Process) CPU(b *testing.B) time.Duration {
	b.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		b.Fatal(err)
	}
	n, err := strconv.ParseInt(p.line(b), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Pause stops the process until Resume, so that it costs nothing while another process is measured.
func (p *Process) Pause(b *testing.B) { p.signal(b, syscall.SIGSTOP) }

// Resume continues a paused process.
func (p *Process) Resume(b *testing.B) { p.signal(b, syscall.SIGCONT) }

func (p *Process) signal(b *testing.B, s syscall.Signal) {
	b.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		b.Fatal(err)
	}
}
