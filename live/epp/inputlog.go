package epp

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

// InputLog writes the inputs and effects of pickers to a recording, from a goroutine of its own. It never makes a
// request wait. If it cannot write fast enough it drops lines and marks the gap. Once it can write again, it restarts
// with the pickers' state.
type InputLog struct {
	o InputLogOptions

	mu       sync.Mutex // below every Picking
	pending  []byte     // whole lines
	spare    []byte
	lost     int64 // lines since lines are dropped
	why      string
	pickings []*recorded // oldest first
	number   int         // of pickers so far

	begun, since int // bytes that the file begins with, and has got since; the writing goroutine's

	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}
	closing sync.Once
	err     error // the last failure to write; the writing goroutine's until done
}

// recorded is a Picking with its log.
type recorded struct {
	k   *Picking
	log *inputlog.Log
}

// InputLogOptions configure an InputLog.
type InputLogOptions struct {
	// One goroutine writes to Inputs.To. If that is an InputFiles, the log continues in another file when one is full.
	report.Inputs
	// MaxPending limits the bytes that wait to be written; 0 is 16 MiB.
	MaxPending int
	// Retry is the pause before a file that could not be written is tried again; 0 is 5 s.
	Retry time.Duration
	// Log gets warnings about dropped lines.
	Log *slog.Logger
}

// InputFiles are files one after the other.
type InputFiles interface {
	// Full reports whether the file has reached its limit.
	Full() bool
	// Next begins another one.
	Next() error
}

const (
	// gatherTime is how long lines wait for others, to be written together.
	gatherTime        = 20 * time.Millisecond
	defaultRetry      = 5 * time.Second
	defaultMaxPending = 16 << 20
)

// NewInputLog begins a log, without pickers.
func NewInputLog(o InputLogOptions) *InputLog {
	o.MaxPending = cmp.Or(max(o.MaxPending, 0), defaultMaxPending)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	x := &InputLog{o: o, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go x.loop()
	return x
}

// Record starts the log of a picker, with the picker's header and its state. A picker has at most one log.
func (k *Picking) Record(x *InputLog) {
	if x == nil {
		return
	}
	h := k.o.Made
	h.Bodies, h.Version = x.o.Bodies, x.o.Version
	k.With(func(m *core.Machine, _ machine.Time) {
		x.mu.Lock()
		x.number++
		h.Picker = x.number
		r := &recorded{k, inputlog.New(m, h, x.take)}
		x.pickings = append(x.pickings, r)
		x.mu.Unlock()
		k.written.Store(&r.log.Options)
		k.inputs = x
		r.log.Start()
	})
}

// forget ends a picker's log. The caller holds the picker.
func (x *InputLog) forget(k *Picking) {
	if x == nil {
		return
	}
	k.m.SetLog(nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pickings = slices.DeleteFunc(x.pickings, func(r *recorded) bool { return r.k == k })
}

// take takes lines that a picker's log wrote. It does not wait.
func (x *InputLog) take(lines []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lost > 0 {
		x.lost++
		return
	}
	if len(x.pending)+len(lines) > x.o.MaxPending && len(x.pending) > 0 {
		x.lost, x.why = 1, "they could not be written as fast as they came"
		return
	}
	x.pending = append(x.pending, lines...)
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// loop writes.
func (x *InputLog) loop() {
	defer close(x.done)
	for {
		select {
		case <-x.wake:
		case <-x.stop:
			_ = x.write() // a log that cannot be written is marked with its gap already
			return
		}
		select {
		case <-time.After(gatherTime):
		case <-x.stop:
		}
		if err := x.write(); err != nil && !x.recover(err) {
			return
		}
	}
}

// write writes the pending lines and continues in another file when this one is full. After dropped lines the log
// restarts.
func (x *InputLog) write() error {
	x.mu.Lock()
	lines := x.pending
	x.pending, x.spare = x.spare[:0], nil
	x.mu.Unlock()
	_, err := x.o.To.Write(lines)
	x.mu.Lock()
	if cap(lines) <= x.o.MaxPending {
		x.spare = lines[:0]
	}
	behind := x.lost > 0
	x.mu.Unlock()
	if err != nil {
		return err
	}
	x.since += len(lines)
	// else a file would hold nothing but its beginning
	if files, ok := x.o.To.(InputFiles); ok && files.Full() && x.since > x.begun {
		return x.restart(files.Next)
	}
	if behind {
		return x.restart(nil)
	}
	return nil
}

// restart writes the pending lines, opens the next file with next if that is not nil, and writes all pickers' state
// there. It copies the state while nothing enters the pickers, and encodes it afterwards.
func (x *InputLog) restart(next func() error) error {
	var last []byte
	var lost int64
	var why string
	var begins []func([]byte) []byte
	x.hold(func(pickings []*recorded) {
		last, lost, why = x.pending, x.lost, x.why
		x.pending, x.lost = nil, 0
		for _, r := range pickings {
			begins = append(begins, r.log.Snapshot())
		}
	})
	if lost > 0 {
		x.o.Log.Warn("epp: the log of inputs has a gap", "lines", lost, "reason", why)
	}
	write := x.o.To.Write
	if _, err := write(last); err != nil && lost == 0 {
		return err
	}
	if next != nil && len(begins) > 0 { // a file without a beginning would be good for nothing
		if err := next(); err != nil {
			return err
		}
	}
	if lost > 0 {
		if _, err := write(fmt.Appendf(nil, "{\"gap\":{\"lines\":%d,\"why\":%q}}\n", lost, why)); err != nil {
			return err
		}
	}
	x.begun, x.since = 0, 0
	for _, begin := range begins {
		n, err := write(begin(nil))
		if err != nil {
			return err
		}
		x.begun += n
	}
	return nil
}

// hold runs f while it holds all pickers, the oldest first, and the log itself.
func (x *InputLog) hold(f func(pickings []*recorded)) {
	for held := false; !held; { // else one has come or gone meanwhile
		x.mu.Lock()
		list := slices.Clone(x.pickings)
		x.mu.Unlock()
		together(list, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			if held = slices.Equal(list, x.pickings); held {
				f(list)
			}
		})
	}
}

// together holds all pickers at once while f runs.
func together(list []*recorded, f func()) {
	if len(list) == 0 {
		f()
		return
	}
	list[0].k.With(func(*core.Machine, machine.Time) { together(list[1:], f) })
}

// recover drops lines until the file can be written again. It is false where
// that will never be.
func (x *InputLog) recover(err error) bool {
	x.err = err
	x.o.Log.Error("epp: the log of inputs cannot be written; lines are dropped", "error", err)
	drop := func(n int64) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.pending, x.lost, x.why = nil, max(x.lost, n), "the file could not be written: "+err.Error()
	}
	drop(1)
	files, ok := x.o.To.(InputFiles)
	for ok {
		select {
		case <-time.After(cmp.Or(x.o.Retry, defaultRetry)):
		case <-x.stop:
			return false
		}
		if again := x.restart(files.Next); again == nil {
			x.err = nil
			return true
		}
		drop(1)
	}
	return false
}

// Close writes the rest and returns the error that the log did not recover from. Pickers may continue without a log.
func (x *InputLog) Close() error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	held := slices.Clone(x.pickings)
	x.mu.Unlock()
	for _, r := range held {
		r.k.With(func(*core.Machine, machine.Time) { x.forget(r.k) })
	}
	x.closing.Do(func() { close(x.stop) })
	<-x.done
	return x.err
}
