package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/rundir"
)

// log is the log of a container, up to what has been printed.
type log struct {
	path    string
	printed int64 // bytes
}

func (k *Kubectl) logs(ctx context.Context) error {
	list, err := k.selected()
	if k.selector == "" {
		var p pod
		p, err = k.onePod()
		list = []pod{p}
	}
	if err != nil {
		return err
	}
	logs := make([]log, len(list))
	for i, p := range list {
		if logs[i].path, err = k.logOf(p); err != nil {
			return err
		}
		text, err := files.Read(logs[i].path, 64<<20)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // otherwise it has not logged anything
			return err
		}
		logs[i].printed = int64(len(text))
		if _, err := k.Out.Write(k.lately(text, time.Now())); err != nil {
			return err
		}
	}
	for k.follow && pause.For(ctx, 50*time.Millisecond) && rundir.Held(string(k.Dir)) {
		for i := range logs {
			text, err := logs[i].more()
			if err == nil {
				_, err = k.Out.Write(text)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// logOf returns the path of the log of a pod's container.
func (k *Kubectl) logOf(p pod) (string, error) {
	c := cmp.Or(k.container, append(p.containers, "")[0])
	switch {
	case !slices.Contains(p.containers, c):
		return "", fmt.Errorf("-c: found %q, expected a container of pod %s: %s", c, p.name,
			strings.Join(p.containers, ", "))
	case k.previous && p.status == "Running":
		return "", fmt.Errorf("--previous: container %s of pod %s runs for the first time; expected a pod that was "+
			"killed", c, p.name)
	case c == "envoy":
		return k.Dir.file(filepath.Join("run", "envoy", "envoy.log")), nil
	}
	return k.Dir.log(logName(p.namespace, p.name, c)), nil
}

// lately returns the lines of a log that the flags --since and --tail ask for.
func (k *Kubectl) lately(text []byte, now time.Time) []byte {
	lines := slices.Collect(bytes.Lines(text))
	if k.since > 0 {
		first := slices.IndexFunc(lines, func(line []byte) bool {
			at, ok := timeOf(string(line))
			return ok && now.Sub(at) <= k.since
		})
		if first < 0 {
			first = len(lines)
		}
		lines = lines[first:]
	}
	if k.tail >= 0 && k.tail < len(lines) {
		lines = lines[len(lines)-k.tail:]
	}
	return bytes.Join(lines, nil)
}

// timeOf returns the time of a line of windtunnel's logs or Envoy's; false for a line without one.
func timeOf(line string) (time.Time, bool) {
	layout, text := time.RFC3339, strings.TrimPrefix(line, "time=")
	end := strings.IndexByte(text, ' ')
	if strings.HasPrefix(line, "[") {
		layout, text = "2006-01-02 15:04:05.000", line[1:]
		end = strings.IndexByte(text, ']')
	}
	t, err := time.ParseInLocation(layout, text[:max(end, 0)], time.Local)
	return t, err == nil
}

// more returns the whole lines of at most 1 MiB that a log has got since. A log that is shorter has begun again.
func (x *log) more() ([]byte, error) {
	f, err := os.Open(x.path)
	if err != nil {
		return nil, nil //nolint:nilerr // it has not logged anything
	}
	defer f.Close()
	at, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if at.Size() < x.printed {
		x.printed = 0
	}
	text := make([]byte, min(at.Size()-x.printed, 1<<20))
	n, err := f.ReadAt(text, x.printed)
	if err != nil && !errors.Is(err, io.EOF) { // the log has begun again
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1]
	x.printed += int64(len(text))
	return text, nil
}

// Event is a line of kubectl get events.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

func (k *Kubectl) events() error {
	w := tabwriter.NewWriter(k.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "LAST SEEN\tTYPE\tREASON\tMESSAGE")
	for _, e := range k.Dir.events() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", time.Since(e.Time).Round(time.Second), e.Type, e.Reason,
			strings.ReplaceAll(e.Message, "\n", " "))
	}
	return w.Flush()
}

// events returns the events so far, the oldest first.
func (d Dir) events() (out []Event) {
	text, _ := files.Read(d.log("events"), 2*maxLog) // without the file there are none
	for line := range strings.Lines(string(text)) {
		var e Event
		if json.Unmarshal([]byte(line), &e) == nil {
			out = append(out, e)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Time.Before(out[j].Time) })
	return out
}

// maxLog is the size in bytes at which a log begins again.
const maxLog = 4 << 20

// Logs writes the logs of a lab's containers, a file each.
type Logs struct {
	dir  Dir
	mu   sync.Mutex // guards open
	open map[string]*logFile
}

// NewLogs returns the logs in a directory.
func NewLogs(d Dir) *Logs { return &Logs{dir: d, open: map[string]*logFile{}} }

// Of returns the log of a container.
func (l *Logs) Of(namespace, pod, container string) *slog.Logger {
	return slog.New(slog.NewTextHandler(l.file(logName(namespace, pod, container)),
		&slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Event adds an event.
func (l *Logs) Event(kind, reason, message string) {
	text, err := json.Marshal(Event{time.Now(), kind, reason, message})
	if err == nil {
		_, _ = l.file("events").Write(append(text, '\n')) // the user loses one event of a lab
	}
}

// Close closes the files.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.open {
		f.Close()
	}
}

func logName(namespace, pod, container string) string {
	return strings.Join([]string{namespace, pod, container}, "_")
}

func (d Dir) log(name string) string { return d.file("log-" + name) }

func (l *Logs) file(name string) io.Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.open[name]
	if f == nil {
		f = &logFile{}
		f.File, f.err = os.OpenFile(l.dir.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		l.open[name] = f
	}
	return f
}

// logFile is a log that begins again when it is too large.
type logFile struct {
	*os.File
	err  error
	mu   sync.Mutex // guards size
	size int
}

func (f *logFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && f.size+len(p) > maxLog {
		f.size, f.err = 0, f.Truncate(0)
	}
	if f.err != nil {
		return 0, f.err
	}
	f.size += len(p)
	return f.File.Write(p)
}
