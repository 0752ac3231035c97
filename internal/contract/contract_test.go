package contract

import (
	"testing"

	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // a tenth of the checks outside nightly runs
)

func TestMachines(t *testing.T) {
	for _, m := range Machines {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, m.Check)
		})
	}
}
