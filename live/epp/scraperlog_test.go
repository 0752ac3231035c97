package epp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// lockedLog is a log that several write to.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// The picker's log has a line with "scraper" (document 003) for each endpoint when its figures become readable, when
// they cease to be, and when they are again.
func TestScraperIsLogged(t *testing.T) {
	t.Parallel()
	var log lockedLog
	var broken atomic.Bool
	k := picking(t, "plugins: [{type: queue-scorer}]", 2, func(o *PickingOptions) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Fetch = func(string) ([]byte, error) {
			if broken.Load() {
				return nil, errors.New("out of order")
			}
			return []byte("vllm:num_requests_waiting 1\n"), nil
		}
	})
	defer k.Close()
	until := func(text string, n int) {
		t.Helper()
		eventually.Is(t, fmt.Sprintf("%d lines with %q", n, text), func() bool { return log.count(text) >= n })
	}
	const reads, fails = "the scraper reads the endpoint's metrics",
		"scraper=metrics-data-source error=\"out of order\""
	until(reads, 2)
	broken.Store(true)
	until(fails, 2)
	broken.Store(false)
	until(reads, 4)
	if log.count(reads) != 4 || log.count(fails) != 2 {
		t.Error(log.b.String())
	}
}
