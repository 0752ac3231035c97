package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// apiServer answers lists and watches of namespace llm over HTTP, as an API server does, or as a broken one.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	objects map[string]map[string]dict // by resource and name
	watches map[chan string]string     // resources by streams
	broken  func(verb, resource string) http.HandlerFunc
}

func newAPIServer(t *testing.T) (*apiServer, dynamic.Interface) {
	s := &apiServer{objects: map[string]map[string]dict{}, watches: map[chan string]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.breakWith(nil); s.CloseClientConnections(); s.Close() })
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	s.put("inferencepools", pool().Object)
	s.put("pods", pod(0, "True").Object)
	return s, client
}

// breakWith makes the server answer with broken's handlers, where there are any, and ends all watches.
func (s *apiServer) breakWith(broken func(verb, resource string) http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
	for w := range s.watches {
		close(w)
		delete(s.watches, w)
	}
}

func (s *apiServer) put(resource string, x dict) { s.change(resource, x, "MODIFIED") }

func (s *apiServer) drop(resource string, x dict) { s.change(resource, x, "DELETED") }

func (s *apiServer) change(resource string, x dict, event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	meta := x["metadata"].(dict)
	meta["resourceVersion"] = fmt.Sprint(s.version)
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]dict{}
	}
	name := meta["name"].(string)
	if s.objects[resource][name] == nil {
		event = "ADDED"
	}
	if s.objects[resource][name] = x; event == "DELETED" {
		delete(s.objects[resource], name)
	}
	s.send(resource, dict{"type": event, "object": x})
}

// expire ends all watches as an API server does that no longer has the versions in between.
func (s *apiServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range slices.Collect(maps.Values(s.watches)) {
		s.send(resource, dict{"type": "ERROR", "object": metav1.Status{Status: metav1.StatusFailure,
			Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"}})
	}
	for w := range s.watches {
		close(w)
		delete(s.watches, w)
	}
}

// send sends an event, with mu locked.
func (s *apiServer) send(resource string, event dict) {
	text, err := json.Marshal(event)
	if err != nil {
		panic(err) // only values that JSON can represent
	}
	for w, of := range s.watches {
		if of == resource {
			w <- string(text)
		}
	}
}

// refuse answers with a Status.
func refuse(err *apierrors.StatusError) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(err.ErrStatus.Code))
		status := err.ErrStatus
		status.Kind, status.APIVersion = "Status", "v1"
		_ = json.NewEncoder(w).Encode(status)
	}
}

// hang answers once the client has left.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, verb := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "list"
	if r.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	known := s.objects[resource] != nil && !strings.Contains(r.URL.Path, "x-k8s.io")
	broken := s.broken
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case broken != nil && broken(verb, resource) != nil:
		broken(verb, resource)(w, r)
	case !known:
		refuse(notFound)(w, r)
	case r.URL.Query().Get("sendInitialEvents") != "":
		refuse(apierrors.NewInvalid(schema.GroupKind{}, "sendInitialEvents", nil))(w, r)
	case verb == "watch":
		s.watch(w, r, resource)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(dict{"kind": "List", "apiVersion": "v1",
			"metadata": dict{"resourceVersion": fmt.Sprint(s.version)},
			"items":    slices.AppendSeq([]dict{}, maps.Values(s.objects[resource]))})
	}
}

// watch sends the newest state of every object, and then each change.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan string, 1000)
	s.mu.Lock()
	if since := r.URL.Query().Get("resourceVersion"); since != fmt.Sprint(s.version) {
		s.mu.Unlock()
		refuse(apierrors.NewResourceExpired("too old resource version"))(w, r)
		return
	}
	s.watches[events] = resource
	s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case text, ok := <-events:
			if !ok {
				return
			}
			fmt.Fprintln(w, text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watches, events)
			return
		}
	}
}

// value returns the sum of a metric over all resources.
func value(t *testing.T, m *Metrics, name string) (sum float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			if f.GetName() == name {
				sum += x.GetCounter().GetValue() + x.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// begin mirrors an API server that has pod 0.
func begin(t *testing.T, client dynamic.Interface) (dir string, m *Metrics, log *lines) {
	t.Helper()
	dir, m, log = t.TempDir(), NewMetrics(), &lines{}
	if err := Start(t.Context(), Options{Client: client, Namespace: "llm", Resources: Pool, Dir: dir, Check: PoolObject,
		Metrics: m, Patience: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))}); err != nil {
		t.Fatal(err)
	}
	if got := endpoints(t, dir); got != 1 {
		t.Fatalf("%d endpoints; expected 1", got)
	}
	return dir, m, log
}

// While the API server fails in any way the objects stay, and its metrics and the log show that; afterwards what has
// changed meanwhile comes, also the removal of what is gone.
func TestServerFails(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"hangs":       hang,
		"fails":       refuse(apierrors.NewInternalError(fmt.Errorf("etcd has no leader"))),
		"is not JSON": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"is misshapen": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","items":[5]}`)
		},
		"refuses": refuse(apierrors.NewForbidden(Pool[0].GroupResource(), "", fmt.Errorf("no role"))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, client := newAPIServer(t)
			dir, m, log := begin(t, client)
			s.breakWith(func(string, string) http.HandlerFunc { return answer })
			s.drop("pods", pod(0, "True").Object)
			s.put("pods", pod(1, "True").Object)
			s.put("pods", pod(2, "True").Object)
			eventually.Is(t, "the metrics", func() bool {
				return value(t, m, "windtunnel_objects_failures_total") > 1 &&
					value(t, m, "windtunnel_objects_age_seconds") > 0
			})
			eventually.Is(t, "the log", func() bool { return log.has("what was read stays") })
			if got := candidates(dir, "llm", "llama"); got != "candidates 10.0.0.1:8000" {
				t.Errorf("%s", got)
			}
			s.breakWith(nil)
			eventually.Is(t, "the changes", func() bool {
				return candidates(dir, "llm", "llama") == "candidates 10.0.0.2:8000 10.0.0.3:8000"
			})
			eventually.Is(t, "the age", func() bool { return value(t, m, "windtunnel_objects_age_seconds") == 0 })
		})
	}
}

// After a watch has expired (410 Gone), nothing of what changed meanwhile is lost.
func TestWatchExpires(t *testing.T) {
	s, client := newAPIServer(t)
	dir, _, _ := begin(t, client)
	s.expire()
	s.drop("pods", pod(0, "True").Object)
	s.put("pods", pod(1, "True").Object)
	eventually.Is(t, "the changes", func() bool { return candidates(dir, "llm", "llama") == "candidates 10.0.0.2:8000" })
}

// An object with a mistake keeps its last good state, or has none, and the others follow.
func TestMalformedObjects(t *testing.T) {
	s, client := newAPIServer(t)
	dir, m, log := begin(t, client)
	bad := pool().Object
	bad["spec"].(dict)["targetPorts"] = "many"
	s.put("inferencepools", bad)
	odd := pod(7, "True").Object
	odd["status"] = []any{"Ready"}
	s.put("pods", odd)
	s.put("pods", pod(1, "True").Object)
	eventually.Is(t, "the other pod", func() bool {
		return candidates(dir, "llm", "llama") == "candidates 10.0.0.1:8000 10.0.0.2:8000"
	})
	eventually.Is(t, "the metric", func() bool { return value(t, m, "windtunnel_objects_refused") == 2 })
	if !log.has("llm/llama") || !log.has("targetPorts: found") {
		t.Errorf("log:\n%s", log.text.String())
	}
	good := pool().Object
	good["spec"].(dict)["targetPorts"] = []any{dict{"number": int64(9000)}}
	s.put("inferencepools", good)
	s.put("pods", pod(7, "True").Object)
	eventually.Is(t, "the mended ones", func() bool {
		return candidates(dir, "llm", "llama") == "candidates 10.0.0.1:9000 10.0.0.2:9000 10.0.0.8:9000"
	})
	eventually.Is(t, "no refused ones", func() bool { return value(t, m, "windtunnel_objects_refused") == 0 })
}

// A missing right to list or to watch is one error at the start.
func TestMissingRights(t *testing.T) {
	for _, missing := range []string{"list", "watch"} {
		s, client := newAPIServer(t)
		s.breakWith(func(verb, resource string) http.HandlerFunc {
			if verb == missing && resource == "inferencepools" {
				return refuse(apierrors.NewForbidden(Pool[1].GroupResource(), "", fmt.Errorf("cannot %s", verb)))
			}
			return nil
		})
		err := Start(t.Context(), Options{Client: client, Namespace: "llm", Resources: Pool, Dir: t.TempDir(),
			Check: PoolObject, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "cannot "+missing) ||
			!strings.Contains(err.Error(), "expected the role of the chart, which may list and watch inferencepools") {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

// 10,000 pods are read, and each change of them rewrites one file.
func TestManyPods(t *testing.T) {
	if os.Getenv("WINDTUNNEL_KUBERNETES") == "" {
		t.Skip("make test-kubernetes reads 10,000 pods")
	}
	const n = 10000
	s, client := newAPIServer(t)
	for i := range n {
		s.put("pods", pod(i, "True").Object)
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	dir, before, began := t.TempDir(), heap(), time.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := Start(ctx, Options{Client: client, Namespace: "llm", Resources: Pool, Dir: dir, Check: PoolObject,
		Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods mirrored in %v, with %.0f MiB", n, time.Since(began), heap()-before)
	began = time.Now()
	if got := endpoints(t, dir); got != n {
		t.Fatalf("%d endpoints; expected %d", got, n)
	}
	t.Logf("read in %v", time.Since(began))
	written := func() map[string]time.Time {
		names, err := filepath.Glob(dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]time.Time{}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				out[name] = info.ModTime()
			}
		}
		return out
	}
	was := written()
	began = time.Now()
	s.put("pods", pod(77, "False").Object)
	changed := 0
	eventually.Is(t, "a changed file", func() bool {
		changed = 0
		for name, at := range written() {
			if !at.Equal(was[name]) {
				changed++
			}
		}
		return changed > 0
	})
	t.Logf("a change is written after %v", time.Since(began))
	if got := endpoints(t, dir); got != n-1 || changed != 1 {
		t.Errorf("%d endpoints in %d changed files; expected %d in 1", got, changed, n-1)
	}
}
