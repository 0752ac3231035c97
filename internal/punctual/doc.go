// Package punctual has timers that ring on time on Linux too.
//
// Where nothing else happens in a process, Go's scheduler waits for its next
// timer in epoll_wait, whose patience it gives in whole milliseconds: timers
// ring 0.7 ms late in the middle (https://go.dev/issue/44343). To a simulated
// model server, whose first token waits for a step of some milliseconds, that
// is an error of some percent. Here a timerfd wakes the scheduler at the moment
// itself, and it sees to its timers then. Nobody reads the timerfd: that it
// expires is enough to wake.
package punctual
