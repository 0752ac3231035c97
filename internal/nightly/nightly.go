// Package nightly decides how much tests do: a part of all cases in make test, which takes minutes, or everything in
// make test-nightly.
package nightly

import (
	"flag"
	"os"

	_ "pgregory.net/rapid" // rapid must define its flag before init sets it
)

// On reports whether tests do everything: every example live, every recording through every port, all checks of every
// property.
func On() bool { return os.Getenv("WINDTUNNEL_NIGHTLY") != "" }

// fewer is the number of checks per property in make test.
const fewer = "25"

func init() {
	if !On() {
		_ = flag.Set("rapid.checks", fewer) // a -rapid.checks on the command line is parsed later and overrides this
	}
}

// Each reports whether to run the i-th of many similar cases: all of them at night, otherwise one in n.
func Each(i, n int) bool { return On() || i%n == 0 }

// Some returns the whole list at night, otherwise every tenth element.
func Some[E any](list []E) (some []E) {
	if On() {
		return list
	}
	for i := 0; i < len(list); i += 10 {
		some = append(some, list[i])
	}
	return some
}
