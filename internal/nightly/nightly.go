// Package nightly says how much the tests do: what make test plays in minutes, or all that there
// is to play (make test-nightly).
package nightly

import (
	"flag"
	"os"

	_ "pgregory.net/rapid" // whose flag is there before init sets it
)

// On is true where everything is played: every example live, every recording through every
// port, all checks of every property.
func On() bool { return os.Getenv("WINDTUNNEL_NIGHTLY") != "" }

// fewer is how many checks each property of a package that imports this one has in make test.
const fewer = "25"

func init() {
	if !On() {
		_ = flag.Set("rapid.checks", fewer) // a command line's -rapid.checks comes later, and counts
	}
}

// Each reports whether the i-th of many alike cases is played: all by night, one of n by day.
func Each(i, n int) bool { return On() || i%n == 0 }

// Some is all of list where everything is played, else a tenth of it, and one at least.
func Some[E any](list []E) (some []E) {
	if On() {
		return list
	}
	for i := 0; i < len(list); i += 10 {
		some = append(some, list[i])
	}
	return some
}
