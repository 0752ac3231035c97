package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/internal/child"
)

const (
	// startTimeout allows for a busy machine; an idle one needs a fifth of a second.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long Envoy may take to end after SIGTERM.
	stopTimeout = 5 * time.Second
	// flushInterval is how long an access log line may take to reach its file.
	flushInterval = 50 * time.Millisecond
)

// The files of one run, in the directory given to Start.
const (
	ConfigFile    = "envoy.yaml"
	LogFile       = "envoy.log"
	AccessLogFile = "access.log"
	adminFile     = "admin-address.txt"
)

// Process is a running Envoy.
type Process struct {
	// Binary and Config are the arguments of Start; Config has its defaults.
	Binary Binary
	Config Config
	// Dir holds the run's configuration and logs.
	Dir string
	// Addr is the address for clients, ip:port, or "" if a control plane sets it. AdminAddr is the address of Envoy's
	// admin pages.
	Addr      string
	AdminAddr string
	// Startup is the time from exec to ready.
	Startup time.Duration

	admin   *admin
	process *child.Process
}

// Start runs Envoy with c in dir and returns when Envoy is ready to serve. ctx limits the start only; the process lives
// until Stop. Start creates dir if necessary; one directory serves one run. The access log goes to dir unless c sets
// another path. Errors are of kind BadConfig, PortTaken or StartFailed, and name the log.
func Start(ctx context.Context, bin Binary, c Config, dir string) (*Process, error) {
	c = c.WithDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fail(StartFailed, err, "run directory: %v", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fail(StartFailed, err, "run directory: %v", err)
	}
	c.AccessLog = cmp.Or(c.AccessLog, filepath.Join(dir, AccessLogFile))
	text, err := c.YAML()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), text, 0o644); err != nil {
		return nil, fail(StartFailed, err, "run directory: %v", err)
	}
	for _, pool := range c.Pools {
		if pool.EndpointsFile != "" {
			if err := WriteEndpoints(pool.EndpointsFile, pool.Name, pool.Endpoints); err != nil {
				return nil, fail(StartFailed, err, "%v", err)
			}
		}
	}
	for _, a := range []string{c.Listen, c.Admin} {
		if err := checkFree(a); err != nil {
			return nil, err
		}
	}
	// Otherwise a file from an earlier run would be taken for this run's.
	if err := os.Remove(filepath.Join(dir, adminFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fail(StartFailed, err, "run directory: %v", err)
	}

	p := &Process{Binary: bin, Config: c, Dir: dir}
	began := time.Now()
	if err := p.launch(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.awaitReady(ctx); err != nil {
		p.process.Kill()
		if p.admin != nil {
			p.admin.close()
		}
		return nil, err
	}
	p.Startup = time.Since(began)
	return p, nil
}

// args returns Envoy's flags for this run.
func (p *Process) args() []string {
	args := []string{
		"--config-path", filepath.Join(p.Dir, ConfigFile),
		"--admin-address-path", filepath.Join(p.Dir, adminFile),
		// Hot restart uses shared memory with an id; parallel runs would collide on it and leave it behind.
		"--disable-hot-restart",
		"--log-level", "info",
		"--file-flush-interval-msec", strconv.FormatInt(flushInterval.Milliseconds(), 10),
	}
	if p.Config.Workers > 0 {
		args = append(args, "--concurrency", strconv.Itoa(p.Config.Workers))
	}
	return args
}

// launch starts the program.
func (p *Process) launch() (err error) {
	raiseDescriptorLimit()
	cmd := exec.Command(p.Binary.Path, p.args()...)
	cmd.Dir = p.Dir
	if p.process, err = child.Run(cmd, p.LogPath()); err != nil {
		return fail(StartFailed, err, "Envoy cannot be started: %v", err)
	}
	return nil
}

// awaitReady polls until the admin page reports LIVE and the listener's address is known.
func (p *Process) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.readyNow(ctx) {
			return nil
		}
		select {
		case <-p.Done():
			return p.explainEnd()
		case <-ctx.Done():
			return &Error{Kind: StartFailed, Err: ctx.Err(), Log: p.LogPath(),
				Message: fmt.Sprintf("Envoy did not become ready: %v", ctx.Err())}
		case <-tick.C:
		}
	}
}

func (p *Process) readyNow(ctx context.Context) bool {
	if p.admin == nil {
		at, err := os.ReadFile(filepath.Join(p.Dir, adminFile))
		if err != nil || !bytes.Contains(at, []byte(":")) {
			return false
		}
		p.AdminAddr = strings.TrimSpace(string(at))
		p.admin = newAdmin(p.AdminAddr)
	}
	if !p.admin.ready(ctx) {
		return false
	}
	if p.Config.Control != "" {
		return true // a control plane adds and removes listeners
	}
	addr, err := p.admin.listener(ctx, listenerName)
	p.Addr = addr
	return err == nil
}

// explainEnd returns an error with the log of an Envoy that ended during its start.
func (p *Process) explainEnd() error {
	tail := strings.Split(p.process.Tail(16<<10), "\n")
	ended := p.process.Wait()
	e := &Error{Kind: StartFailed, Err: ended, Log: p.LogPath()}
	for _, line := range tail {
		switch {
		case strings.Contains(line, "cannot bind"), strings.Contains(line, "Address already in use"):
			e.Kind = PortTaken
			e.Message = fmt.Sprintf("Envoy cannot listen: an address of %s and %s is in use: %s",
				p.Config.Listen, p.Config.Admin, clip(message(line), 300))
			return e
		case strings.Contains(line, "error initializing config"), strings.Contains(line, "[critical]"):
			e.Kind = BadConfig
			e.Message = "Envoy refused its configuration " + filepath.Join(p.Dir, ConfigFile) + ": " +
				clip(message(line), 512)
			return e
		}
	}
	e.Message = fmt.Sprintf("Envoy ended while starting (%v)", ended)
	if last := tail[len(tail)-1]; last != "" {
		e.Message += ": " + clip(message(last), 300)
	}
	return e
}

// message returns a log line without its time, thread and source position.
func message(line string) string {
	if i := strings.LastIndex(line, "] "); i >= 0 && strings.HasPrefix(line, "[") {
		return line[i+2:]
	}
	return line
}

// checkFree returns a clear error at once if a fixed port is taken. Envoy itself would share the port with another
// Envoy.
func checkFree(addr string) error {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fail(PortTaken, err, "cannot listen on %s: %v; choose another port, or 0 for any free one", addr,
			errors.Unwrap(err))
	}
	return l.Close()
}

// LogPath returns the path of Envoy's own log of this run.
func (p *Process) LogPath() string { return filepath.Join(p.Dir, LogFile) }

// PID returns the process id, for people and for measurements.
func (p *Process) PID() int { return p.process.PID() }

// Done returns a channel that is closed when Envoy has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.process.Done() }

// Ended reports whether Envoy has ended.
func (p *Process) Ended() bool { return p.process.Ended() }

// Wait blocks until Envoy has ended. It returns nil after an orderly end.
func (p *Process) Wait() error {
	if err := p.process.Wait(); err != nil {
		return &Error{Kind: StartFailed, Err: err, Log: p.LogPath(), Message: fmt.Sprintf("Envoy ended: %v", err)}
	}
	return nil
}

// Stop ends Envoy with SIGTERM, and kills it after five seconds or when ctx ends. It returns when the process has
// ended; a second Stop does nothing.
func (p *Process) Stop(ctx context.Context) error {
	p.process.Stop(ctx, stopTimeout)
	p.admin.close()
	return nil
}
