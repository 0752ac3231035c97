package predictor

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"sync"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/epp/predictor/xgboost"
	"github.com/windtunnel/windtunnel/internal/child"
)

//go:embed trainer.py
var program string

// Trainer fits trees in a Python process. The first Fit starts the process, and after a failure the next Fit starts a
// new one.
type Trainer struct {
	// Library is the Python to run.
	Library Library
	// Timeout bounds one training; 0 means DefaultTimeout.
	Timeout time.Duration

	mu   sync.Mutex
	proc *process
}

// DefaultTimeout bounds one training. The largest possible one, of six models with 200,000 samples each, takes some
// minutes on a slow core.
const DefaultTimeout = 10 * time.Minute

type process struct {
	cmd     *exec.Cmd
	in      *bufio.Writer
	stdin   io.Closer
	out     *bufio.Reader
	errors  tail
	library string
}

// tail keeps the end of a process's standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - 2000; n > 0 {
		t.text = t.text[n:]
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return lines[len(lines)-1]
}

func (t *Trainer) start() (*process, error) {
	p := &process{cmd: exec.Command(t.Library.Python, "-c", program)}
	p.cmd.Env = environment(t.Library.Site)
	p.cmd.Stderr = &p.errors
	p.cmd.WaitDelay = 2 * time.Second
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(p.cmd); err != nil {
		return nil, err
	}
	p.stdin, p.in, p.out = stdin, bufio.NewWriterSize(stdin, 1<<16), bufio.NewReaderSize(stdout, 1<<16)
	return p, nil
}

// end kills the process and waits for its end.
func (p *process) end() {
	child.Kill(p.cmd)
	_ = p.cmd.Wait() // the error says that it was killed
}

type head struct {
	Number  int    `json:"number"`
	Library string `json:"library,omitempty"`
	// Processor is the processor's family, which may change the last digits of results.
	Processor string     `json:"processor,omitempty"`
	Error     string     `json:"error,omitempty"`
	Sets      []setHead  `json:"sets,omitempty"`
	Models    []sizeHead `json:"models,omitempty"`
}

type setHead struct {
	Name      core.Name     `json:"name"`
	Rows      int           `json:"rows"`
	Columns   []core.Column `json:"columns"`
	Objective string        `json:"objective"`
	Alpha     float64       `json:"alpha,omitempty"`
}

type sizeHead struct {
	Name core.Name `json:"name"`
	Size int       `json:"size"`
}

// Fit fits models. Errors are in the result. After an error, the next Fit starts a new process.
func (t *Trainer) Fit(ctx context.Context, f core.Fit) core.Fitted {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := core.Fitted{Number: f.Number}
	if t.proc == nil {
		if t.proc, out.Err = t.start(); out.Err != nil {
			return out
		}
	}
	p := t.proc
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(max(t.Timeout, 0), DefaultTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { child.Kill(p.cmd) }) // this ends the reads below
	var refused bool
	out.Library, out.Models, refused, out.Err = p.fit(&f)
	if !stop() || out.Err != nil && !refused {
		p.end()
		t.proc = nil
	}
	if out.Err == nil {
		return out
	}
	if ctx.Err() != nil {
		out.Err = fmt.Errorf("the training was aborted: %w", ctx.Err())
	} else if word := p.errors.last(); word != "" && !refused {
		out.Err = fmt.Errorf("%w: %.300s", out.Err, word)
	}
	return out
}

// fit sends the request and reads the answer. With refused, the process works but could not fit these samples.
func (p *process) fit(f *core.Fit) (library string, models map[core.Name][]byte, refused bool, err error) {
	if p.library == "" {
		var hello head
		if err := p.line(&hello); err != nil {
			return "", nil, false, err
		}
		if hello.Library != "xgboost "+Version {
			return "", nil, false, fmt.Errorf("found %.60q; expected xgboost %s", hello.Library, Version)
		}
		p.library = hello.Library + " on " + hello.Processor
	}
	q := head{Number: f.Number}
	for i := range f.Sets {
		s := &f.Sets[i]
		q.Sets = append(q.Sets, setHead{s.Name, len(s.Targets), s.Columns, s.Objective, s.Alpha})
	}
	if err := json.NewEncoder(p.in).Encode(&q); err != nil {
		return "", nil, false, err
	}
	for i := range f.Sets {
		for _, list := range [][]float32{f.Sets[i].Rows, f.Sets[i].Targets} {
			var b [4]byte
			for _, v := range list {
				binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
				if _, err := p.in.Write(b[:]); err != nil {
					return "", nil, false, err
				}
			}
		}
	}
	if err := p.in.Flush(); err != nil {
		return "", nil, false, err
	}
	var a head
	if err := p.line(&a); err != nil {
		return "", nil, false, err
	}
	switch {
	case a.Error != "":
		return "", nil, true, errors.New(a.Error)
	case a.Number != f.Number || len(a.Models) != len(f.Sets):
		return "", nil, false, fmt.Errorf("found the answer to training %d with %d models; expected %d with %d",
			a.Number, len(a.Models), f.Number, len(f.Sets))
	}
	models = map[core.Name][]byte{}
	for _, m := range a.Models {
		if m.Size < 0 || m.Size > xgboost.MaxBytes {
			return "", nil, false, fmt.Errorf("found a model of %d bytes; expected at most %d", m.Size,
				xgboost.MaxBytes)
		}
		text := make([]byte, m.Size)
		if _, err := io.ReadFull(p.out, text); err != nil {
			return "", nil, false, err
		}
		models[m.Name] = text
	}
	return p.library, models, false, nil
}

// line reads one line of JSON.
func (p *process) line(into *head) error {
	text, err := p.out.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		err = errors.New("Python ended")
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Close ends the process.
func (t *Trainer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.proc != nil {
		t.proc.end()
		t.proc = nil
	}
}
