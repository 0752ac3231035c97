package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"custom-scorer": main}) }

// The scripts run the example's program as a user does.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			here, err := os.Getwd()
			e.Setenv("EXAMPLE", here)
			for _, name := range []string{"HOME", "XDG_CACHE_HOME", "ENVOY_PATH"} { // they lead to Envoy
				if v, ok := os.LookupEnv(name); ok {
					e.Setenv(name, v)
				}
			}
			return err
		}})
}

// The documentation promises fewer than 40 lines.
func TestUnderFortyLines(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n >= 40 {
		t.Errorf("main.go has %d lines, fewer than 40 are promised", n)
	}
}
