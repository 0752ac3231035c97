package virtual

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// The same seed gives the same bytes, whatever processor windtunnel is built for: one with fused
// multiplication and addition (GOAMD64=v3) rounds otherwise than one without. Every example that
// virtual time can play, and arrivals of all kinds.
func TestSameOnEveryProcessor(t *testing.T) {
	switch {
	case os.Getenv("WINDTUNNEL_PROCESSORS") == "":
		t.Skip("it builds all of windtunnel twice: make test-processors")
	case runtime.GOARCH != "amd64":
		t.Skipf("this processor (%s) has no such levels", runtime.GOARCH)
	}
	dir := t.TempDir()
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]string{
		"weibull": "arrivals: weibull, burstiness: 0.37, rate: 40",
		"gamma":   "arrivals: gamma, burstiness: 0.6, rate: 40", "poisson": "rate: 40",
		"diurnal": "rate: 40, diurnal: {period: 10s, swing: 77%}",
		"ramp":    "stages: [{duration: 3s, rate: 7}, {duration: 5s, rate: 91, ramp: true}]",
	} {
		file := filepath.Join(dir, name+".yaml")
		text := `{apiVersion: windtunnel/v1alpha1, kind: Scenario, pools: [{name: a, flow: plain, replicas: 3, modelServer: {batching: continuous, jitter: {factor: "lognormal(1, 0.1)"}}}],
			workload: {requests: 300, prompt: {tokens: "lognormal(700, 500, max=4000)"}, outputTokens: "exponential(60, min=1, max=900)", ` + load + `}}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	args := files[:0:0]
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		} else if s, err := scenario.Parse(file, text); err != nil {
			t.Fatal(err)
		} else if len(s.Pools[0].Endpoints) == 0 {
			args = append(args, file)
		}
	}
	said := map[string]string{}
	for _, level := range []string{"v1", "v3"} {
		program := filepath.Join(dir, level)
		build := exec.Command("go", "build", "-o", program, "./testdata/digest")
		build.Env = append(os.Environ(), "GOAMD64="+level, "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command(program, args...).Output()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			if level == "v3" && strings.Contains(string(exit.Stderr), "microarchitecture support") {
				t.Skip("this processor cannot run what is built for v3: one with AVX2 and FMA can")
			}
			t.Fatalf("%v: %s", err, exit.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		said[level] = string(out)
	}
	if n := strings.Count(said["v1"], "\n"); n != len(args) {
		t.Fatalf("%d of %d scenarios were played", n, len(args))
	}
	if said["v1"] != said["v3"] {
		t.Errorf("another processor gives other bytes:\n%s\n%s", said["v1"], said["v3"])
	}
}
