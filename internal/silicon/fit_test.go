package silicon

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

func TestFitDebug(t *testing.T) {
	rows, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var servers []*Server
	for i := range rows {
		s, err := NewServer(&rows[i])
		if err != nil {
			t.Log(err)
			continue
		}
		servers = append(servers, s)
	}
	c := latency.BuiltinCalibration()
	if f := os.Getenv("CAL"); f != "" {
		b, _ := os.ReadFile(f)
		var f latency.CalibrationFile
		f.Parameters = c
		if json.Unmarshal(b, &f.Parameters) != nil && json.Unmarshal(b, &f) != nil {
			t.Fatal(err)
		}
		c = f.Parameters
	}
	if n, _ := strconv.Atoi(os.Getenv("STEPS")); n > 0 {
		c.Clamp()
		prior := latency.PriorCalibration()
		f, err := NewFitter(servers, &prior).Fit(context.Background(), &c, n, func(s int, x float64) { t.Log(s, x, time.Now()) })
		if err != nil {
			t.Fatal(err)
		}
		c = f.Calibration
		for p := range c {
			t.Logf("%s %.4g ±%.0f%%", latency.Parameters[p].Name, c[p], 100*f.Spread[p])
		}
		b, _ := json.MarshalIndent(c, "", "  ")
		os.WriteFile(os.Getenv("OUT"), b, 0o644)
	}
	b := time.Now()
	all, err := Predict(context.Background(), servers, &c)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(b), len(all))
	x := Compare(all)
	x.WriteText(os.Stdout)
}
