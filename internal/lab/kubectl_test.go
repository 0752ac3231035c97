package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/live/up"
)

// running returns kubectl for a lab with two pods and no processes.
func running(t *testing.T) (*Kubectl, *output) {
	t.Helper()
	d := Dir(t.TempDir() + "/lab")
	held, err := rundir.Only(string(d))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.End(nil) })
	s := State{Addresses: &up.Addresses{Pickers: []up.PickerAddress{
		{Name: "picker-0", Namespace: "a", Container: "epp", Labels: map[string]string{"app": "picker"}},
		{Name: "picker-1", Namespace: "a", Container: "epp", Labels: map[string]string{"app": "picker"}}}}}
	if err := d.Write(s); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.Manifests(), 0o700); err != nil {
		t.Fatal(err)
	}
	out := &output{}
	return &Kubectl{Dir: d, Out: out, Err: out}, out
}

// output collects the text that kubectl prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// The flags of kubectl logs choose pods and lines as kubectl's do, in any order and in both forms.
func TestLogs(t *testing.T) {
	t.Parallel()
	k, out := running(t)
	line := func(age time.Duration, text string) string {
		return "time=" + time.Now().Add(-age).Format(time.RFC3339Nano) + " msg=" + text + "\n"
	}
	for name, text := range map[string]string{
		"a_picker-0_epp": line(time.Hour, "old") + "  more of old\n" + line(time.Minute, "new") + "  more of new\n",
		"a_picker-1_epp": line(time.Hour, "other"),
	} {
		if err := os.WriteFile(k.Dir.log(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]string{
		"logs picker-0":                        "old more of old new more of new",
		"logs -n a pod/picker-0 -c epp":        "old more of old new more of new",
		"logs --tail=1 picker-0":               "more of new",
		"logs picker-0 --since 10m":            "new more of new",
		"logs --since=10m --tail 1 picker-0":   "more of new",
		"logs --since=1s picker-0":             "",
		"-n a logs -l app=picker --tail=1":     "more of new other",
		"logs -p picker-0":                     "expected a pod that was killed",
		"logs picker-0 --previous":             "expected a pod that was killed",
		"logs picker-0 --since=soon":           "expected a duration such as 5s",
		"logs -n b picker-0":                   "found no pod",
		"logs deploy/none":                     "found no pod of deploy/none",
		"logs picker-0 -c none":                "expected a container of pod picker-0: epp",
		"logs picker-0 --since":                "expected a value after it",
		"get -f":                               "expected a value after it",
		"logs picker-0 --limit-bytes=1":        "[--since 1m] [--previous] [-f]",
		"logs picker-0 --follow=false --tail=": "old more of old new more of new",
	} {
		out.text.Reset()
		err := k.Run(context.Background(), strings.Fields(command))
		var words []string
		for _, w := range strings.Fields(out.String()) {
			if w = strings.TrimPrefix(w, "msg="); !strings.HasPrefix(w, "time=") {
				words = append(words, w)
			}
		}
		got := strings.Join(words, " ")
		if err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl %s: %q, %v; expected %q", command, got, err, want)
		}
	}
}

// logs -f prints what is there, then each whole line once, of all pods, also after a log has begun again, until Ctrl-C.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	k, out := running(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	path := k.Dir.log("a_picker-0_epp")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	shows := func(want string) {
		t.Helper()
		eventually.Is(t, want, func() bool { return out.String() == want })
	}
	write("one\n")
	go func() { ended <- k.Run(ctx, strings.Fields("logs -f -l app=picker")) }()
	shows("one\n")
	write("two\nthr")
	shows("one\ntwo\n")
	write("ee\n")
	shows("one\ntwo\nthree\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write("4\n")
	path = k.Dir.log("a_picker-1_epp")
	shows("one\ntwo\nthree\n4\n")
	write("5\n")
	shows("one\ntwo\nthree\n4\n5\n")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The times of windtunnel's own lines and Envoy's are read, and others have none.
func TestTimeOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"time=2026-05-01T10:00:00.250Z level=INFO": "2026-05-01T10:00:00.25Z",
		"[2026-05-01 10:00:00.250][1][info] x": time.Date(2026, 5, 1, 10, 0, 0, 250e6, time.Local).UTC().
			Format(time.RFC3339Nano),
		"time=": "", "": "", "[": "", "  at a line": "",
	} {
		at, ok := timeOf(line)
		if ok != (want != "") || ok && at.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %v %v, expected %q", line, at, ok, want)
		}
	}
}

// A metric is judged by its growth, by its value, or by its growth for each of another, within both limits.
func TestJudge(t *testing.T) {
	t.Parallel()
	most := 2.0
	for _, c := range []struct {
		m             Metric
		before, after [2]float64
		want          string
	}{
		{Metric{Name: "n", Pods: "a=b", AtLeast: 3}, [2]float64{5}, [2]float64{8},
			`{"what":"growth of n of pods a=b","expected":"3 or more","found":"3","ok":true}`},
		{Metric{Name: "n", Pods: "a=b", AtLeast: 3, Now: true}, [2]float64{5}, [2]float64{2},
			`{"what":"n of pods a=b","expected":"3 or more","found":"2","ok":false}`},
		{Metric{Name: "n", Pods: "a=b", Per: "d", AtMost: &most}, [2]float64{0, 0}, [2]float64{9, 3},
			`{"what":"growth of n of pods a=b for each d","expected":"0 to 2","found":"3","ok":false}`},
		{Metric{Name: "n", Pods: "a=b", Per: "d", AtMost: &most}, [2]float64{0, 0}, [2]float64{2, 0},
			`{"what":"growth of n of pods a=b for each d","expected":"0 to 2","found":"2","ok":true}`},
	} {
		got, err := json.Marshal(c.m.judge(c.before, c.after))
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v; expected %s", got, err, c.want)
		}
	}
}
