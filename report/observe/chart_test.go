package observe

import (
	"bytes"
	"flag"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the chart's files again")

// The chart in deploy/chart installs what windtunnel observe writes for a cluster.
func TestChart(t *testing.T) {
	made, err := Files(Options{Interval: 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range made {
		if name == PrometheusFile || path.Base(path.Dir(name)) != "dashboards" && path.Ext(name) != ".yml" ||
			path.Dir(path.Dir(name)) == Provisioning {
			continue
		}
		file := filepath.Join("../../deploy/chart/files/observe", path.Base(name))
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, text) {
			t.Errorf("%s is not %s of windtunnel observe (%v); go test ./report/observe -run TestChart -update writes "+
				"it again", file, name, err)
		}
	}
}
