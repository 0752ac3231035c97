package record

import (
	"strings"
	"testing"
	"time"
)

func TestSLO(t *testing.T) {
	for text, want := range map[string]SLO{
		"ttft=200ms,tpot=30ms": {TTFT: 200 * time.Millisecond, TPOT: 30 * time.Millisecond},
		"e2e=1m0s":             {E2E: time.Minute},
	} {
		got, err := ParseSLO(strings.Split(text, ","))
		if err != nil || got != want || got.String() != text || !got.Given() || got.Summary().SLO() != want {
			t.Errorf("%s: found %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"ttft", "ttft=0s", "ttft=-1s", "tbt=1s"} {
		if _, err := ParseSLO([]string{text}); err == nil ||
			!strings.Contains(err.Error(), "expected ttft, tpot or e2e") {
			t.Errorf("%s: found %v", text, err)
		}
	}
	if (SLO{}).Given() || (SLO{}).Summary() != nil || (*SLOSummary)(nil).SLO() != (SLO{}) {
		t.Error("an empty SLO has bounds")
	}
}
