// Package child runs what a benchmark measures in processes of its own, so that
// their CPU time and memory are not the load generator's: the benchmark's own
// binary, started again with a role.
//
// A process prints its addresses on one line and then answers every line on its
// standard input with the CPU time that it has used; it ends with its input.
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

// The role and its argument reach a process in these variables.
const roleVar, argVar = "WINDTUNNEL_BENCH_ROLE", "WINDTUNNEL_BENCH_ARG"

// profileVar names a directory into which every process writes a CPU profile,
// ROLE.PID.pprof, for whoever wants to know where the time goes.
const profileVar = "WINDTUNNEL_BENCH_PROFILES"

// Main is for TestMain. In a process with a role it has play start what the
// role serves, and ends the process when its parent closes it; otherwise it
// runs the benchmarks.
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
	// Addresses are what it serves.
	Addresses []string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// Start starts a process with a role and ends it with the benchmark.
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

// CPU is the user and system time that the process has used.
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

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Pause stops the process where it is, so that it costs nothing while another
// is measured, until Resume.
func (p *Process) Pause(b *testing.B) { p.signal(b, syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume(b *testing.B) { p.signal(b, syscall.SIGCONT) }

func (p *Process) signal(b *testing.B, s syscall.Signal) {
	b.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		b.Fatal(err)
	}
}
