package punctual

import (
	"container/heap"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Timer is a punctual time.Timer that runs a function. Its methods are those of time.Timer, and are safe for
// concurrent use.
type Timer struct {
	timer *time.Timer
	at    time.Duration // time since began
	place int           // index in due; -1: not there
}

// AfterFunc runs f in a goroutine of its own after the given time.
func AfterFunc(wait time.Duration, f func()) *Timer {
	t := &Timer{place: -1}
	mu.Lock()
	defer mu.Unlock()
	t.timer = time.AfterFunc(wait, func() {
		passed()
		f()
	})
	t.wake(wait)
	return t
}

// Reset sets the timer to fire after the given time. It reports whether the timer was set before.
func (t *Timer) Reset(wait time.Duration) bool {
	mu.Lock()
	defer mu.Unlock()
	set := t.timer.Reset(wait)
	t.wake(wait)
	return set
}

// Stop stops the timer. It reports whether the timer was set.
func (t *Timer) Stop() bool {
	mu.Lock()
	defer mu.Unlock()
	if t.place >= 0 {
		heap.Remove(&due, t.place)
		expire(time.Since(began))
	}
	return t.timer.Stop()
}

var (
	began = time.Now()
	// A timerfd, and the file by which the runtime's poller watches it. They are nil if the kernel does not provide
	// one; timers are then as late as Go's.
	fd, file = open()

	mu   sync.Mutex
	due  moments
	next time.Duration // time at which the timerfd expires, or has expired
)

func open() (int, *os.File) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return 0, nil
	}
	return fd, os.NewFile(uintptr(fd), "timerfd")
}

// wake makes the scheduler check its timers after the given time.
func (t *Timer) wake(wait time.Duration) {
	if file == nil {
		return
	}
	now := time.Since(began)
	if t.at = now + wait; t.place < 0 {
		heap.Push(&due, t)
	} else {
		heap.Fix(&due, t.place)
	}
	expire(now)
}

// passed drops the times that have passed.
func passed() {
	mu.Lock()
	defer mu.Unlock()
	now := time.Since(began)
	for len(due) > 0 && due[0].at <= now {
		heap.Pop(&due)
	}
	expire(now)
}

// expire sets the timerfd to the first time.
func expire(now time.Duration) {
	if len(due) == 0 || next == due[0].at {
		return
	}
	next = due[0].at
	// 0 would disarm it. If setting it fails, timers are late.
	_ = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(1, next-now)))}, nil)
}

// moments is a heap of timers, ordered by the time at which they fire.
type moments []*Timer

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i].at < m[j].at }

func (m moments) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].place, m[j].place = i, j
}

func (m *moments) Push(x any) {
	t := x.(*Timer)
	t.place = len(*m)
	*m = append(*m, t)
}

func (m *moments) Pop() any {
	last := len(*m) - 1
	t := (*m)[last]
	(*m)[last] = nil
	*m = (*m)[:last]
	t.place = -1
	return t
}
