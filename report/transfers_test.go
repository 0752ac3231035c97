package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// KV caches that servers fetched are counted and printed. A request that computed its prompt itself, or that is not of
// the run, is no transfer.
func TestTransfers(t *testing.T) {
	t.Parallel()
	tally := NewTally()
	begin := func(request string, details ...record.Detail) {
		tally.Record(record.Event{Request: request, Hop: record.Client, Step: record.RequestSent})
		tally.Record(record.Event{Time: machine.Second, Request: request, Hop: record.Server,
			Step:     record.PrefillStarted,
			Endpoint: "a", Details: details})
	}
	if s := tally.Summary(); s.Transfers != nil {
		t.Errorf("%+v", s.Transfers)
	}
	begin("req-1-000001", record.D("cached_tokens", 0))
	for i, us := range []int{1000, 2000, 3000, 40000} {
		begin(record.RequestID(1, 2+i), record.D("cached_tokens", 0), record.D("fetched_bytes", 250_000_000),
			record.D("fetched_us", us))
	}
	s := tally.Summary()
	if d := cmp.Diff(&TransferSummary{Count: 4, Bytes: 1_000_000_000, P50: .002, P90: .04, P99: .04, Max: .04},
		s.Transfers, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-4 && b-a < 1e-4 })); d != "" {
		t.Error(d)
	}
	var out strings.Builder
	if err := s.Write(&out, false, 0); err != nil {
		t.Fatal(err)
	}
	if want := "kv moved   4 transfers of 1 GB in all, each in p50 2.0ms"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
