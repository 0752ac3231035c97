package record

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// SLO are the objectives of a good answer. A bound of 0 does not count.
type SLO struct {
	// The longest time to the first token.
	TTFT time.Duration `json:"ttft" above:"0s" max:"24h"`
	// The longest mean time of each further token.
	TPOT time.Duration `json:"tpot" above:"0s" max:"24h"`
	// The longest time of the whole answer.
	E2E time.Duration `json:"e2e" above:"0s" max:"24h"`
}

// Given reports whether any bound is set.
func (o SLO) Given() bool { return o != SLO{} }

// String returns the bounds that are set in the form that ParseSLO reads, such as ttft=200ms,tpot=30ms.
func (o SLO) String() string {
	var out []string
	for _, x := range []struct {
		name string
		most time.Duration
	}{{"ttft", o.TTFT}, {"tpot", o.TPOT}, {"e2e", o.E2E}} {
		if x.most > 0 {
			out = append(out, x.name+"="+x.most.String())
		}
	}
	return strings.Join(out, ",")
}

// ParseSLO parses bounds, each such as ttft=200ms.
func ParseSLO(list []string) (slo SLO, err error) {
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		d, err := time.ParseDuration(value)
		to := map[string]*time.Duration{"ttft": &slo.TTFT, "tpot": &slo.TPOT, "e2e": &slo.E2E}[name]
		if to == nil || err != nil || d <= 0 {
			return slo, fmt.Errorf("found %q; expected ttft, tpot or e2e with a duration above 0, such as "+
				"ttft=200ms,tpot=30ms", text)
		}
		*to = d
	}
	return slo, nil
}

// SLOSummary is an SLO in a summary's JSON, in seconds.
type SLOSummary struct {
	TTFT float64 `json:"ttft,omitempty"`
	TPOT float64 `json:"tpot,omitempty"`
	E2E  float64 `json:"e2e,omitempty"`
}

// Summary returns the SLO in seconds, nil if no bound is set.
func (o SLO) Summary() *SLOSummary {
	if !o.Given() {
		return nil
	}
	return &SLOSummary{o.TTFT.Seconds(), o.TPOT.Seconds(), o.E2E.Seconds()}
}

// SLO returns the bounds; none if it is nil.
func (t *SLOSummary) SLO() SLO {
	if t == nil {
		return SLO{}
	}
	of := func(seconds float64) time.Duration { return time.Duration(math.Round(min(seconds, 1e6) * 1e9)) }
	return SLO{of(t.TTFT), of(t.TPOT), of(t.E2E)}
}
