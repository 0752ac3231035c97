package report

import (
	"fmt"
	"io"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
)

// The cost of one request for the readers of a long run: tally and progress alone, and with a recording.
func BenchmarkSession(b *testing.B) {
	events, err := readAll("testdata/one.ndjson")
	if err != nil {
		b.Fatal(err)
	}
	for _, json := range []bool{false, true} {
		b.Run(fmt.Sprintf("json=%v", json), func(b *testing.B) {
			s, err := Start(Options{Out: io.Discard, JSON: json, Requests: b.N, Detail: Progress})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			id := make([]byte, 0, 32)
			for i := 0; b.Loop(); i++ {
				id = fmt.Appendf(id[:0], "req-%09d", i)
				request := string(id)
				for _, e := range events {
					e.Request = request
					s.Record(e)
				}
			}
			if sum, err := s.End(false); err != nil || sum.Outcomes[record.Completed] == 0 {
				b.Fatal(sum, err)
			}
		})
	}
}
