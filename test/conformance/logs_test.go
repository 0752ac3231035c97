package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// logs keeps the echo servers' answers in the form in which the suite searches the logs of its own servers.
type logs struct {
	mu    sync.Mutex
	lines map[string][]line // by namespace/pod
}

type line struct {
	at   time.Time
	text string
}

// Enabled returns true for every level.
func (l *logs) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps a pod's answers.
func (l *logs) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "pod answers" {
		return nil
	}
	of := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { of[a.Key] = a.Value.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string][]line{}
	}
	pod := of["namespace"] + "/" + of["pod"]
	l.lines[pod] = append(l.lines[pod],
		line{r.Time, fmt.Sprintf("Echoing back request made to %s to client\n", of["path"])})
	return nil
}

// WithAttrs changes nothing, because pods log everything in one line.
func (l *logs) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup changes nothing either.
func (l *logs) WithGroup(string) slog.Handler { return l }

// clientset returns the client with which the suite reads logs.
func (l *logs) clientset(t *testing.T) clientset.Interface {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{pod}/log", func(w http.ResponseWriter, r *http.Request) {
		since, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime"))
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, x := range l.lines[r.PathValue("namespace")+"/"+r.PathValue("pod")] {
			if !x.at.Before(since) {
				fmt.Fprint(w, x.text)
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := clientset.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
