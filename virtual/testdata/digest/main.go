// Command digest plays scenarios in virtual time and prints a digest of each whole record, for
// TestSameOnEveryProcessor, which builds it for processors of several kinds.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

func main() {
	for _, file := range os.Args[1:] {
		sum, err := digest(file)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
		fmt.Printf("%s %x\n", filepath.Base(file), sum)
	}
}

func digest(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Parse(file, text)
	if err != nil {
		return nil, err
	}
	s.Workload.Requests = min(s.Workload.Requests, 300)
	h := sha256.New()
	out := json.NewEncoder(h)
	tally := report.NewTally()
	var failed error
	all := record.Tee(tally, record.Func(func(e record.Event) {
		if err := out.Encode(e); err != nil && failed == nil {
			failed = err
		}
	}))
	if _, err := virtual.Play(s, all, virtual.Options{Gaps: tally.Gaps(), Served: tally.SetLoads}); err != nil {
		return nil, err
	}
	sum := tally.Summary()
	sum.Measures = report.Runs{tally.Sample()}.Under(record.SLO{}).All()
	if err := out.Encode(sum); err != nil {
		return nil, err
	}
	return h.Sum(nil), failed
}
