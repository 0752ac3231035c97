// Package punctual has timers that fire on time on Linux too.
//
// While nothing else happens in a process, Go's scheduler waits for its next timer in epoll_wait, whose time-out is
// in whole milliseconds. Timers therefore fire 0.7 ms late on average (https://go.dev/issue/44343). For a simulated
// model server whose first token takes a step of a few milliseconds, that is an error of some percent. This package
// sets a timerfd that wakes the scheduler at the exact time, and the scheduler then runs its timers. Nothing reads
// the timerfd: its expiry is enough to wake the scheduler.
package punctual
