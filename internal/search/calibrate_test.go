package search

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/calibrate"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// prober is a server without a queue: a prompt takes 1 ms for each token, and each further token 2 ms.
type prober struct {
	busy   int
	probes int
	after  func(probes int) // called after each probe
}

func (p *prober) Discover(context.Context, string) (calibrate.Server, error) {
	return calibrate.Server{Model: "m", ModelLen: 129, Busy: p.busy}, nil
}

func (p *prober) Probe(ctx context.Context, x calibrate.Probe) (calibrate.Result, error) {
	p.probes++
	if p.after != nil {
		p.after(p.probes)
	}
	r := calibrate.Result{Cached: -1}
	arrive := func(at machine.Time, s calibrate.Send) {
		var times []machine.Time
		for i := range s.Tokens {
			times = append(times, at+machine.Time(s.Prompt)*machine.Millisecond+machine.Time(2*i)*machine.Millisecond)
		}
		r.Arrived = append(r.Arrived, times)
	}
	for range x.Requests {
		arrive(0, calibrate.Send{Prompt: x.Prompt, Tokens: x.Tokens})
	}
	for _, s := range x.Later {
		arrive(s.At, s)
		r.Sent = append(r.Sent, s.At)
	}
	return r, ctx.Err()
}

func TestCalibrateDecides(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times.csv")
	options := func(p *prober) CalibrateOptions {
		return CalibrateOptions{Prober: p, Endpoint: "127.0.0.1:8000", File: file, Accelerator: "H100", TP: 1,
			Limits: calibrate.Limits{MaxPrompt: 1024, MaxBatch: 2, Contexts: []int{32, 64}, Repeats: 1},
			Begin:  func(calibrate.Server) {}, Progress: func(int, string) {}}
	}
	for name, change := range map[string]func(*CalibrateOptions){
		"--tensor-parallel-size": func(c *CalibrateOptions) { c.TP = 65 },
		"--endpoint":             func(c *CalibrateOptions) { c.Endpoint = "tcp://127.0.0.1:8000" },
		"cannot be written":      func(c *CalibrateOptions) { c.File = filepath.Join(file, "times.csv") },
		"serves 3 requests":      func(c *CalibrateOptions) { c.Prober = &prober{busy: 3} },
	} {
		c := options(&prober{})
		change(&c)
		if _, err := Calibrate(t.Context(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: found %v", name, err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("%s: the file was written", name)
		}
	}

	// An interruption after the first probe leaves too little for a table.
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	x, err := Calibrate(ctx, options(&prober{after: func(int) { interrupt() }}))
	if exit.Of(err) != exit.Interrupted || x == nil {
		t.Fatalf("interrupted: found %v, %v", x, err)
	}
	var out strings.Builder
	if err := x.Write(&out, 0); err != nil || !strings.Contains(out.String(), "too little was measured") {
		t.Errorf("%v: %s", err, &out)
	}

	// The prompts are as long as the server's model takes, and the file has the server's times.
	x, err = Calibrate(t.Context(), options(&prober{}))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := latency.ParseCSV(file, string(text))
	if err != nil || len(all) != 1 || all[0].Model != "m" || all[0].System != "H100" {
		t.Fatalf("%v, %v\n%s", all, err, text)
	}
	longest := int64(0)
	for _, p := range all[0].Points {
		if !p.Decode {
			longest = max(longest, p.Context)
		}
	}
	if longest != 128 {
		t.Errorf("the longest prompt has %d tokens, expected 128\n%s", longest, text)
	}
	out.Reset()
	if err := x.Write(&out, 0); err != nil || !strings.Contains(out.String(), "written to "+file) {
		t.Errorf("%v: %s", err, &out)
	}
	if _, err := Calibrate(t.Context(), options(&prober{})); exit.Of(err) != exit.Usage {
		t.Errorf("an existing file: found %v", err)
	}
}
