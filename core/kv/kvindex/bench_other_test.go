//go:build !unix

package kvindex

import "time"

var began = time.Now()

func cpuTime() time.Duration { return time.Since(began) }
