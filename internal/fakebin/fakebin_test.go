package fakebin_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/internal/fakebin"
)

// A script runs at once, whatever else starts processes meanwhile.
func TestWriteAmongForks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 25 {
				path := fakebin.Write(t, filepath.Join(dir, fmt.Sprint(i), fmt.Sprint(j)), "#!/bin/sh\nexit 0\n")
				if err := exec.Command(path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
