//go:build unix

package envoy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/fakebin"
)

func TestStartReadyStop(t *testing.T) {
	t.Parallel()
	p := startEnvoy(t, onePool())
	t.Logf("%s %s at %s, ready in %v", p.Binary.Path, p.Binary.Version, p.Addr, p.Startup)
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	stats, err := p.Stats(t.Context(), "server.")
	if err != nil {
		t.Fatal(err)
	}
	if stats["server.live"] != 1 {
		t.Errorf("server.live = %d, want 1", stats["server.live"])
	}
	for name := range stats {
		if !strings.HasPrefix(name, "server.") {
			t.Errorf("Stats(server.) has %s", name)
		}
	}
	idle(t, p)
	if dump, err := p.ConfigDump(t.Context()); err != nil || !strings.Contains(string(dump), "picker-default") {
		t.Errorf("ConfigDump: %v", err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("Wait after Stop: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr); err == nil {
		t.Error("the port still answers after Stop")
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			startEnvoy(t, onePool())
		})
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, set := range map[string]func(*Config){
		"listen": func(c *Config) { c.Listen = l.Addr().String() },
		"admin":  func(c *Config) { c.Admin = l.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			c := onePool()
			set(&c)
			_, err := Start(t.Context(), envoyForTest(t), c, t.TempDir())
			wantKind(t, err, PortTaken)
			if !strings.Contains(err.Error(), l.Addr().String()) {
				t.Errorf("the message does not name the address: %v", err)
			}
		})
	}
}

// A second Envoy on the port of a first must not silently share it.
func TestPortTakenByEnvoy(t *testing.T) {
	t.Parallel()
	first := startEnvoy(t, onePool())
	c := onePool()
	c.Listen = first.Addr
	_, err := Start(t.Context(), first.Binary, c, t.TempDir())
	wantKind(t, err, PortTaken)
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	t.Run("refused configuration", func(t *testing.T) {
		c := onePool()
		c.AccessLog = filepath.Join(t.TempDir(), "no", "such", "directory", "log")
		_, err := Start(t.Context(), envoyForTest(t), c, t.TempDir())
		wantKind(t, err, BadConfig)
		t.Log(err)
	})
	t.Run("ends at once", func(t *testing.T) {
		bin := Binary{Path: script(t, "#!/bin/sh\necho something is wrong\nexit 3\n")}
		_, err := Start(t.Context(), bin, onePool(), t.TempDir())
		wantKind(t, err, StartFailed)
		if !strings.Contains(err.Error(), "something is wrong") || !strings.Contains(err.Error(), LogFile) {
			t.Errorf("the message lacks the reason or the log: %v", err)
		}
	})
	t.Run("never ready", func(t *testing.T) {
		bin := Binary{Path: script(t, "#!/bin/sh\nsleep 1000 & wait\n")}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := Start(ctx, bin, onePool(), t.TempDir())
		wantKind(t, err, StartFailed)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the cause is lost: %v", err)
		}
	})
	t.Run("not a program", func(t *testing.T) {
		_, err := Start(t.Context(), Binary{Path: filepath.Join(t.TempDir(), "none")}, onePool(), t.TempDir())
		wantKind(t, err, StartFailed)
	})
}

// An Envoy that will not obey is ended by force.
func TestStopByForce(t *testing.T) {
	t.Parallel()
	p := startEnvoy(t, onePool())
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil {
		t.Error("Wait says that a killed Envoy ended in order")
	}
}

func TestDiesByItself(t *testing.T) {
	t.Parallel()
	p := startEnvoy(t, onePool())
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), p.LogPath()) {
		t.Errorf("Wait = %v, want an error that names the log", err)
	}
}

const orphanHelperEnv = "WINDTUNNEL_ENVOY_TEST_ORPHAN_DIR"

// orphanHelper is this test binary run as a program that starts Envoy and is
// then killed.
func orphanHelper() int {
	bin, err := realEnvoy()
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	p, err := Start(context.Background(), bin, onePool(), os.Getenv(orphanHelperEnv))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println(p.PID())
	select {}
}

func TestNoOrphan(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	t.Parallel()
	envoyForTest(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanHelperEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("helper said %q", line)
	}
	if !alive(pid) {
		t.Fatal("Envoy does not run before the kill")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually.Is(t, "Envoy to die with its parent", func() bool { return !alive(pid) })
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := stat[strings.LastIndexByte(string(stat), ')')+1:]
	return !strings.HasPrefix(strings.TrimSpace(string(after)), "Z")
}

func wantKind(t *testing.T, err error, kind Kind) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("error = %v, want one of kind %s", err, kind)
	}
}

// script writes an executable file that stands in for a program.
func script(t *testing.T, text string) string {
	t.Helper()
	return fakebin.Write(t, filepath.Join(t.TempDir(), "envoy"), text)
}
