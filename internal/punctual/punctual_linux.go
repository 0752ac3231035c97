package punctual

import (
	"container/heap"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Timer is a time.Timer that runs a function, and is on time. Its methods do
// what a time.Timer's do, and may be called from any goroutine.
type Timer struct {
	timer *time.Timer
	at    time.Duration // since began
	place int           // in due; -1: it is not there
}

// AfterFunc runs f in a goroutine of its own after so long.
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

// Reset has the timer ring after so long, and not as it was set before. It is
// whether it was set.
func (t *Timer) Reset(wait time.Duration) bool {
	mu.Lock()
	defer mu.Unlock()
	set := t.timer.Reset(wait)
	t.wake(wait)
	return set
}

// Stop has the timer not ring. It is whether it was set.
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
	// A timerfd, and the file by which the runtime's poller watches it: nil where
	// the kernel gives none, and timers are as late as Go's.
	fd, file = open()

	mu   sync.Mutex
	due  moments
	next time.Duration // the timerfd expires then, or has
)

func open() (int, *os.File) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return 0, nil
	}
	return fd, os.NewFile(uintptr(fd), "timerfd")
}

// wake has the scheduler look at its timers after so long.
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

// passed drops the moments that have passed.
func passed() {
	mu.Lock()
	defer mu.Unlock()
	now := time.Since(began)
	for len(due) > 0 && due[0].at <= now {
		heap.Pop(&due)
	}
	expire(now)
}

// expire sets the timerfd for the first moment.
func expire(now time.Duration) {
	if len(due) == 0 || next == due[0].at {
		return
	}
	next = due[0].at
	// 0 would switch it off. That it cannot be set is no more than that timers are late.
	_ = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(1, next-now)))}, nil)
}

// moments are a heap of timers by the time at which they ring.
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
