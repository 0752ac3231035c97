package child

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Process is a running program whose output is written to a log file.
type Process struct {
	// Log is the path of the log.
	Log string

	cmd   *exec.Cmd
	ended chan struct{} // closed when the program has ended
	err   error         // the program's exit error, valid after ended is closed
}

// Run starts a program like Start, with its output in the file log.
func Run(cmd *exec.Cmd, log string) (*Process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the program has its own descriptor
	cmd.Stdout, cmd.Stderr = file, file
	if err := Start(cmd); err != nil {
		return nil, err
	}
	p := &Process{Log: log, cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Ended reports whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Wait waits until the program has ended. It returns nil after exit code 0.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// Stop asks the program to end, and kills it if it has not ended within patience or when ctx ends. It kills
// everything that the program has started in any case. It returns after the program's end, and reports whether it had
// to kill the program.
func (p *Process) Stop(ctx context.Context, patience time.Duration) (killed bool) {
	if !p.Ended() {
		Terminate(p.cmd)
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		select {
		case <-p.ended:
		case <-ctx.Done():
			killed = true
		}
	}
	p.Kill()
	return killed
}

// Kill kills the program and everything that it has started, and waits for its end.
func (p *Process) Kill() {
	Kill(p.cmd)
	<-p.ended
}

// Tail returns the end of the log, at most so many bytes, or "" if the log cannot be read.
func (p *Process) Tail(most int) string {
	text, _ := os.ReadFile(p.Log) // without the log, the error is shorter
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}
