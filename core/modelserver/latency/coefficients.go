package latency

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/engine"
)

// Coefficients is PerToken as users write it: spans such as "6.1ms", "20.5us" or "44ps". Empty is 0.
type Coefficients struct {
	Step, PrefillOverhead, PrefillToken, DecodeSequence, ContextToken string
}

// PerToken parses every field. An error names the invalid one.
func (c Coefficients) PerToken() (p PerToken, err error) {
	for _, f := range []struct {
		name, text string
		to         *engine.Fixed
	}{
		{"step", c.Step, &p.Step}, {"prefillOverhead", c.PrefillOverhead, &p.PrefillOverhead},
		{"prefillToken", c.PrefillToken, &p.PrefillToken},
		{"decodeSequence", c.DecodeSequence, &p.DecodeSequence}, {"contextToken", c.ContextToken, &p.ContextToken},
	} {
		if f.text == "" {
			continue
		}
		if *f.to, err = ParseFixed(f.text); err != nil {
			return PerToken{}, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return p, nil
}

// ParseFixed parses a span that may be shorter than a nanosecond: in the format of time.ParseDuration, or in
// picoseconds as in "44ps".
func ParseFixed(text string) (engine.Fixed, error) {
	const expected = "expected a span such as 6.1ms, 20.5us, 9ns or 44ps, not negative and at most 1h"
	text = strings.TrimSpace(text)
	if number, ok := strings.CutSuffix(text, "ps"); ok {
		ps, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(ps >= 0 && ps <= 3600e12) {
			return 0, fmt.Errorf("%q: %s", text, expected)
		}
		return engine.FixedNanos(ps / 1000), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > time.Hour {
		return 0, fmt.Errorf("%q: %s", text, expected)
	}
	if d < 10*time.Microsecond { // ParseDuration drops fractions of a nanosecond
		if number, ok := strings.CutSuffix(text, "ns"); ok {
			if ns, err := strconv.ParseFloat(number, 64); err == nil {
				return engine.FixedNanos(ns), nil
			}
		}
	}
	return engine.Fixed(d) << engine.FixedShift, nil
}
