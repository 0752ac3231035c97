package workload

import "github.com/windtunnel/windtunnel/core/machine"

// Prefixes draws n beginnings of prompts, with lengths in characters, from the seed of the prompts.
func Prefixes(seed uint64, n int, a Alphabet, length func(*machine.Draw) int64) []string {
	var out []string
	for i := range n {
		d := machine.NewDraw(seed, "client", "prefix", uint64(i))
		size := int(length(&d))
		out = append(out, text(&d, a, size, true))
	}
	return out
}
