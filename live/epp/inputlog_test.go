package epp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

// logged is a picker with a log of inputs.
type logged struct {
	*Picking
	t      *testing.T
	inputs *InputLog
	n      uint64
}

// startLogged has a picker that remembers prompts and what is in flight.
func startLogged(t *testing.T, inputs *InputLog) *logged {
	t.Helper()
	o := &PickerOptions{Log: slog.New(slog.DiscardHandler), AllowExperimental: true, Readiness: true, Config: []byte(`
plugins:
- {type: active-request-scorer}
- {type: prefix-cache-scorer}
- {type: session-affinity-scorer, parameters: {strategy: session_id}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: active-request-scorer}, {pluginRef: prefix-cache-scorer}, {pluginRef: session-affinity-scorer}]}
`)}
	p, err := BuildPicker(o)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	k, err := NewPicking(PickingOptions{
		Config: core.Config{Picker: p, ScrapeInterval: 1000 * machine.Second, Describe: true}, Made: o.Made(),
		Inputs: inputs,
		Now:    func() machine.Time { return machine.FromDuration(time.Since(began)) },
		Fetch:  func(string) ([]byte, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	var list []*picker.Endpoint
	for i := range 4 {
		list = append(list, picker.NewEndpoint("default", fmt.Sprintf("w%d", i), fmt.Sprintf("10.0.0.%d", i+1), "8000",
			nil))
	}
	k.SetEndpoints(list)
	return &logged{k, t, inputs, 0}
}

// pass sends requests until something is so.
func (l *logged) pass(what string, until func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); !until(); {
		if time.Now().After(deadline) {
			l.t.Fatalf("waited in vain until %s", what)
		}
		var all sync.WaitGroup
		for range 8 {
			l.n++
			n := l.n
			all.Go(func() {
				onePass(l.t, l.Picking, n,
					fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"%0300d"}]}`, n%7))
			})
		}
		all.Wait()
	}
}

// again plays what was written, from its beginning.
func again(t *testing.T, text []byte) inputlog.Counts {
	t.Helper()
	p := inputlog.Player{Registry: plugins.Builtin(), CheckStates: true}
	if err := recording.ReadInputs("the log", bytes.NewReader(text), p.Line); err != nil {
		t.Fatal(err)
	}
	if p.First != nil {
		t.Fatalf("played again: %v", p.First)
	}
	return p.Counts
}

func read(t *testing.T, files ...string) (text []byte) {
	t.Helper()
	for _, file := range files {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	return text
}

// A long log of inputs is kept in a bounded number of bounded files. Each of them can be played by itself; together
// they have everything.
func TestInputFiles(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "epp.ndjson")
	const most = 100_000
	to, err := recording.CreateInputFiles(name, most, 3)
	if err != nil {
		t.Fatal(err)
	}
	l := startLogged(t, NewInputLog(InputLogOptions{Inputs: report.Inputs{To: to}}))
	rounds := 0
	var first os.FileInfo
	l.pass("five files were full", func() bool {
		until(t, "little waits to be written", func() bool { // how large a file becomes depends on it
			l.inputs.mu.Lock()
			defer l.inputs.mu.Unlock()
			return len(l.inputs.pending) < most
		})
		if now, err := os.Stat(name); err == nil && (first == nil || !os.SameFile(first, now)) {
			first = now
			rounds++
		}
		return rounds > 5
	})
	if err := errors.Join(l.inputs.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(name + "*")
	if err != nil || len(all) != 3 {
		t.Fatalf("files %v, %v", all, err)
	}
	for _, file := range all {
		if info, err := os.Stat(file); err != nil || info.Size() > 20*most {
			t.Errorf("%s has %d bytes, %v", file, info.Size(), err)
		}
		if n := again(t, read(t, file)); n.Skipped > 0 || n.Gaps > 0 || file != name && n.Decisions == 0 {
			t.Errorf("%s by itself: %+v", file, n)
		}
	}
	if n := again(t, read(t, name+".2", name+".1", name)); n.Skipped > 0 || n.Snapshots != 3 || n.Gaps > 0 {
		t.Errorf("one after the other: %+v", n)
	}
}

// pipe is a file that can be stopped, or fail.
type pipe struct {
	mu      sync.Mutex
	text    bytes.Buffer
	failing error
	nexts   int
}

func (p *pipe) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing != nil {
		return 0, p.failing
	}
	return p.text.Write(lines)
}

func (p *pipe) Full() bool { return false }

func (p *pipe) Next() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nexts++
	return p.failing
}

func (p *pipe) say(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = err
}

func (p *pipe) has(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.text.Bytes(), []byte(what))
}

// A file that takes lines too slowly loses some of them, and no request waits for it. The log marks the gap and
// restarts behind it.
func TestSlowInputLog(t *testing.T) {
	t.Parallel()
	p := &pipe{}
	l := startLogged(t, NewInputLog(InputLogOptions{Inputs: report.Inputs{To: p}, MaxPending: 20_000}))
	p.mu.Lock()
	l.pass("lines were dropped", func() bool {
		l.inputs.mu.Lock()
		defer l.inputs.mu.Unlock()
		return l.inputs.lost > 100
	})
	p.mu.Unlock()
	l.pass("the log went on", func() bool { return p.has(`{"gap":`) })
	before := l.n
	l.pass("ten more", func() bool { return l.n >= before+10 })
	if err := l.inputs.Close(); err != nil {
		t.Fatal(err)
	}
	if n := again(t, p.text.Bytes()); n.Gaps < 1 || n.Lost < 100 || n.Decisions < 10 {
		t.Errorf("%+v", n)
	}
}

// A full disk loses lines, and no request. Once there is space the log continues in another file.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := &pipe{}
	l := startLogged(t, NewInputLog(InputLogOptions{Inputs: report.Inputs{To: p}, Retry: time.Millisecond}))
	l.pass("something was written", func() bool { return p.has(`"decided"`) })
	p.say(errors.New("no space left on device"))
	l.pass("it was tried again", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.nexts > 2
	})
	p.say(nil)
	l.pass("the log went on", func() bool { return p.has(`no space left`) })
	before := l.n
	l.pass("ten more", func() bool { return l.n >= before+10 })
	if err := l.inputs.Close(); err != nil {
		t.Fatal(err)
	}
	if n := again(t, p.text.Bytes()); n.Gaps != 1 || n.Lost == 0 || n.Decisions < 10 {
		t.Errorf("%+v", n)
	}
}

// Close reports a disk that stays full.
func TestDiskStaysFull(t *testing.T) {
	t.Parallel()
	p := &pipe{}
	p.say(errors.New("no space left on device"))
	l := startLogged(t, NewInputLog(InputLogOptions{Inputs: report.Inputs{To: p}, Retry: time.Millisecond}))
	l.pass("it was tried", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.nexts > 0
	})
	if err := l.inputs.Close(); err == nil {
		t.Error("nothing was told")
	}
}
