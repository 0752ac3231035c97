//go:build !linux

package punctual

import "time"

// Timer is a time.Timer that runs a function. Go's own timers are punctual on this system.
type Timer = time.Timer

// AfterFunc runs f in a goroutine of its own after the given time.
func AfterFunc(wait time.Duration, f func()) *Timer { return time.AfterFunc(wait, f) }
