// Command windtunnel plays the llm-d request flow: real Envoy, endpoint picker
// and sidecar around simulated model servers, in wall time (run) or in virtual
// time (sim). All of it is package program, so that a main of your own can add
// plug-ins to it.
package main

import (
	"os"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/program"
)

func main() { os.Exit(program.Main()) }
