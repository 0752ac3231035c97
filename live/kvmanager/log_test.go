package kvmanager

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
)

// Each event of a message gets a line, up to a number of lines per second. Further events are counted.
func TestEventsAreLogged(t *testing.T) {
	var b bytes.Buffer
	l := eventLog{log: NewLogger(&b, slog.LevelInfo)}
	at := time.Unix(1, 0)
	l.received(at, "pod", []kv.Event{{Kind: kv.Heartbeat},
		{Kind: kv.Stored, BlockTokens: 16, Name: "b1", Hashes: []kv.EngineHash{1}}}, time.Millisecond)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"HEARTBEAT"`) ||
		!strings.Contains(lines[1], `"block_hash":"b1","block_size":16`) {
		t.Fatal(b.String())
	}
	b.Reset()
	l.received(at, "pod", make([]kv.Event, 100), 0)
	l.received(at.Add(time.Second), "pod", make([]kv.Event, 1), 0)
	if n := strings.Count(b.String(), "KVEvent received"); n != linesPerSecond-2+1 ||
		!strings.Contains(b.String(), `"lines":52`) {
		t.Errorf("%d lines: %s", n, b.String())
	}
}
