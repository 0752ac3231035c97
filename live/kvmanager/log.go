package kvmanager

import (
	"cmp"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
)

// NewLogger returns a logger that writes document 003's log lines: JSON with timestamp, level, component and message.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w,
		&slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				return slog.String("timestamp", a.Value.Time().UTC().Format(time.RFC3339))
			case slog.LevelKey:
				return slog.String("level", strings.ToLower(a.Value.String()))
			case slog.MessageKey:
				a.Key = "message"
			}
			return a
		}}))
}

// eventLog writes one line per event. Beyond linesPerSecond it only counts the events, so that a burst costs little.
type eventLog struct {
	log        *slog.Logger
	second     int64
	lines      int
	suppressed int
}

const linesPerSecond = 50

func (l *eventLog) received(now time.Time, pod string, events []kv.Event, took time.Duration) {
	if s := now.Unix(); s != l.second {
		if l.suppressed > 0 {
			l.log.Info("KVEvent lines left out", "lines", l.suppressed)
		}
		l.second, l.lines, l.suppressed = s, 0, 0
	}
	for i := range events {
		if l.lines++; l.lines > linesPerSecond {
			l.suppressed += len(events) - i
			return
		}
		l.line(&events[i], pod, len(events), took)
	}
}

// line logs one event. Events is the number of events in its message, and took the time to handle the message.
func (l *eventLog) line(e *kv.Event, pod string, events int, took time.Duration) {
	attrs := []any{"event_type", e.Kind.Document(), "pod_id", cmp.Or(e.Pod, pod)}
	if len(e.Hashes) > 0 {
		attrs = append(attrs, "block_hash", cmp.Or(e.Name, e.Hashes[0].Name()))
	}
	if e.BlockTokens > 0 {
		attrs = append(attrs, "block_size", e.BlockTokens)
	}
	attrs = append(attrs, "processing_time_ms", float64(took.Microseconds())/1000, "events", events)
	l.log.Info("KVEvent received", attrs...)
}
