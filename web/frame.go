package web

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

// frameRows bounds the rows of a frame. Further rows wait for the next frame. A row that changes again before then is
// sent once.
const frameRows = 2_000

// cursor is a browser's position in a Book.
type cursor struct {
	version uint64 // of the changes sent
	snap    int    // the next row of a snapshot; -1 means no snapshot
	names   int
	pods    int
	gauges  int
	notices int
	first   int
	frames  int
}

// measurements are the report's measurements so far. Width is the length of a window, in seconds.
type measurements struct {
	Summary report.Summary  `json:"summary"`
	Windows []report.Window `json:"windows"`
	Width   float64         `json:"width"`
	Level   report.Level    `json:"level"`
}

// measured returns the report's measurements as JSON, or nil if there are none.
func (b *Book) measured() []byte {
	b.mu.Lock()
	f, level := b.metrics, b.level
	b.mu.Unlock()
	if f == nil {
		return nil
	}
	list, width := f.Series().Windows()
	text, err := json.Marshal(measurements{f.Summary(), list, width, level})
	if err != nil {
		return nil // an infinite number, which recordings do not have either
	}
	return text
}

// frame returns the changes since a cursor, as JSON, with the given metrics if there are any. It returns nil if
// nothing has changed.
func (b *Book) frame(c *cursor, metrics []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []byte(`{"now":`)
	out = appendMicros(out, b.now)
	empty := len(out)
	if c.snap < 0 && b.version-c.version >= uint64(len(b.changes)) {
		// The browser is too far behind. The frame reports the gap and starts a new snapshot.
		out = append(out, `,"gap":`...)
		out = strconv.AppendUint(out, b.version-c.version, 10)
		c.snap = b.first
	}
	rows := []byte(`,"rows":[`)
	count := 0
	row := func(n int) {
		if count++; count > 1 {
			rows = append(rows, ',')
		}
		rows = appendRow(rows, n, &b.rows[n-b.first])
	}
	if c.snap >= 0 {
		if c.snap <= b.first {
			c.snap, c.version = b.first, b.version
			out = append(out, `,"snapshot":`...)
			out = strconv.AppendInt(out, int64(len(b.rows)), 10)
		}
		for ; c.snap < b.first+len(b.rows) && count < frameRows; c.snap++ {
			row(c.snap)
		}
		if c.snap == b.first+len(b.rows) {
			c.snap = -1
		}
	} else {
		for c.version < b.version && count < frameRows {
			c.version++
			n := b.changes[c.version%uint64(len(b.changes))]
			if n >= b.first && n-b.first < len(b.rows) && b.rows[n-b.first].version == c.version {
				row(n)
			}
		}
	}
	if c.names < len(b.names) { // sent before the rows that use them
		out = list(out, "names", b.names[c.names:], appendName)
		out = append(out, `,"namesFrom":`...)
		out = strconv.AppendInt(out, int64(c.names), 10)
		c.names = len(b.names)
	}
	if count > 0 {
		out = append(append(out, rows...), ']')
	}
	if c.pods < len(b.pods) {
		out = list(out, "pods", b.pods[c.pods:], appendPod)
		c.pods = len(b.pods)
	}
	if from := max(0, c.gauges-b.gone); from < len(b.gauges) {
		to := min(len(b.gauges), from+frameRows)
		out = list(out, "gauges", b.gauges[from:to], func(out []byte, g *gauge) []byte { return g.append(out) })
		c.gauges = b.gone + to
	}
	if from := slices.IndexFunc(b.notices, func(x notice) bool { return x.number >= c.notices }); from >= 0 {
		out = list(out, "notices", b.notices[from:],
			func(out []byte, x *notice) []byte { return append(out, x.text...) })
		c.notices = b.noticed
	}
	if b.first > c.first {
		c.first = b.first
		out = append(out, `,"first":`...)
		out = strconv.AppendInt(out, int64(b.first), 10)
	}
	if metrics != nil {
		out = append(append(out, `,"metrics":`...), metrics...)
	}
	if len(out) == empty && c.frames > 0 {
		return nil
	}
	if b.ended && c.snap < 0 && c.version == b.version {
		out = append(out, `,"ended":true`...)
	}
	c.frames++
	return append(out, '}')
}

// list appends a named list. Each element is appended by a function.
func list[T any](out []byte, name string, of []T, each func(out []byte, x *T) []byte) []byte {
	out = append(append(append(out, `,"`...), name...), `":[`...)
	for i := range of {
		if i > 0 {
			out = append(out, ',')
		}
		out = each(out, &of[i])
	}
	return append(out, ']')
}

func appendName(out []byte, name *string) []byte { return recording.AppendString(out, *name) }

func appendPod(out []byte, pod *[2]string) []byte {
	return append(recording.AppendString(append(recording.AppendString(append(out, '['), pod[0]), ','), pod[1]), ']')
}

func (g *gauge) append(out []byte) []byte {
	out = append(out, '[')
	out = appendMicros(out, g.at)
	ready := 0
	if g.Ready {
		ready = 1
	}
	for _, v := range []int{int(g.pod), g.Waiting, g.Running, ready} {
		out = append(out, ',')
		out = strconv.AppendInt(out, int64(v), 10)
	}
	out = append(out, ',')
	out = strconv.AppendFloat(out, g.KV, 'f', 4, 64)
	for _, a := range g.Adapters {
		out = recording.AppendString(append(out, ','), a)
	}
	return append(out, ']')
}

func appendMicros(out []byte, t machine.Time) []byte {
	return strconv.AppendInt(out, int64(max(t, 0)/machine.Microsecond), 10)
}
