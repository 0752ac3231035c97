package program

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

// Clients that share a schedule send each request once, and their report has the requests of all. A client that comes
// late, or whose command line does not fit, is refused.
func TestClientsShareASchedule(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string]int{}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		sent[r.Header.Get("X-Request-Id")]++
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"+
			"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer gateway.Close()
	dir := filepath.Join(t.TempDir(), "results")
	command := "load " + oneServer(t) + " --rate 1000 -n 30 --results " + dir
	target := " --target " + strings.TrimPrefix(gateway.URL, "http://")
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() { printed(t, strings.Fields(fmt.Sprintf("%s%s --share %d/3", command, target, i))...) })
	}
	clients.Wait()
	if len(sent) != 30 {
		t.Errorf("the gateway got %d requests; expected 30: %v", len(sent), sent)
	}
	text := printed(t, strings.Fields(command+" --collect")...)
	if !regexp.MustCompile(`30 (requests|completed)|completed +30`).MatchString(text) {
		t.Errorf("expected a report of 30 requests:\n%s", text)
	}
	for args, want := range map[string]string{
		command + target + " --share 2/3":                "without this one",
		"load --rate 5 --target a:1 --share 0/2":         "found no --results",
		"load -c 5 --target a:1 --results x --share 0/2": "closed loop",
		"load --rate 5": "--target is missing",
		"load --rate 5 --collect --results " + t.TempDir():  "found no parts",
		command + target + " --share 3/3":                   "found \"3/3\"",
		command + target + " --share 1/9 --wait 10ms":       "part 0 of 9 is not there after 10ms",
		command + target + " --share 1/3 --record a.ndjson": "found --record",
	} {
		var out bytes.Buffer
		if code := run(strings.Fields(args), testOutside(&out)); code == 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d: %s; expected %q", args, code, &out, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "part-1-of-3.ndjson.gz")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run(strings.Fields(command+" --collect"), testOutside(&out)); code == 0 ||
		!strings.Contains(out.String(), "found 2 parts") {
		t.Errorf("exit code %d with a part missing: %s", code, &out)
	}
}

// The report of several parts is the report of one client that sent all of their requests, to the byte. Parts that did
// not end by themselves are reported.
func TestPartsOfOneReport(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), oneServer(t)
	whole := filepath.Join(dir, "whole.ndjson.gz")
	printed(t, "sim", file, "--record", whole, "-n", "60")
	collected := func(parts int, ended bool) (text string, code int) {
		results := filepath.Join(dir, fmt.Sprint(parts, ended))
		if err := os.Mkdir(results, 0o755); err != nil {
			t.Fatal(err)
		}
		var writers []*recording.Writer
		for i := range parts {
			w, err := recording.Create(filepath.Join(results, fmt.Sprintf("part-%d-of-%d.ndjson.gz", i, parts)))
			if err != nil {
				t.Fatal(err)
			}
			writers = append(writers, w)
		}
		if err := recording.Merge([]string{whole}, func(e record.Event) {
			number := 0
			for _, c := range e.Request { // all events of a request are its client's
				number += int(c)
			}
			writers[number%parts].Record(e)
		}); err != nil {
			t.Fatal(err)
		}
		for _, w := range writers {
			if ended {
				w.Summary(report.Summary{})
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		for _, form := range []string{"text", "csv", "inference-perf"} {
			code |= run([]string{"load", file, "-n", "60", "--collect", "--results", results, "--output", form},
				testOutside(&out))
		}
		return out.String(), code
	}
	want, code := collected(1, true)
	if got, more := collected(3, true); code != 0 || more != 0 || got != want {
		t.Errorf("exit codes %d and %d; three parts:\n%s\nexpected\n%s", code, more, got, want)
	}
	if text, code := collected(2, false); code == 0 || !strings.Contains(text, "has no summary at its end") {
		t.Errorf("exit code %d: %s", code, text)
	}
}
