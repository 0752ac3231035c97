package modelserver

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/windtunnel/windtunnel/core/modelserver/stats"
)

// traffic counts requests and bytes of the HTTP interface.
type traffic struct {
	mu     sync.Mutex
	counts stats.HTTP
}

// measured counts every request that next serves, by its route.
func (s *Server) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, m := time.Now(), measuredWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			x := stats.Exchange{Handler: routeOf(r), Method: r.Method, Status: m.status,
				Seconds: time.Since(began).Seconds(), In: max(0, r.ContentLength)}
			if !m.streamed { // a stream has no Content-Length
				x.Out = m.bytes
			}
			s.traffic.mu.Lock()
			s.traffic.counts.Observe(&x)
			s.traffic.mu.Unlock()
			if s.opts.LogHTTP {
				s.log.Info("HTTP request", "server", s.name, "method", r.Method, "uri", r.RequestURI, "from",
					r.RemoteAddr, "status", m.status, "bytes", m.bytes, "seconds", x.Seconds)
			}
		}()
		next.ServeHTTP(&m, r)
	})
}

// routeOf returns the path of the route that served a request, or "" if no route did.
func routeOf(r *http.Request) string {
	if r.Pattern == "" {
		return r.URL.Path // served without the mux
	}
	if i := strings.IndexByte(r.Pattern, '/'); len(r.Pattern) > i+1 {
		return r.Pattern[i:]
	}
	return ""
}

// measuredWriter records an answer's status and length.
type measuredWriter struct {
	http.ResponseWriter
	status   int
	bytes    int64
	streamed bool
}

func (w *measuredWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *measuredWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (w *measuredWriter) Flush() {
	w.streamed = true
	w.ResponseWriter.(http.Flusher).Flush()
}

// EnableFullDuplex lets http.ResponseController enable full duplex.
func (w *measuredWriter) EnableFullDuplex() error {
	return http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
}

// Unwrap gives http.ResponseController the writer below.
func (w *measuredWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ownProcess holds the process_* metrics of the process, under the names that Prometheus' client for Python uses. All
// servers of a process report the same values, which are read once a second.
var ownProcess struct {
	mu     sync.Mutex
	second int64
	page   []byte
	once   sync.Once
	all    *prometheus.Registry
}

func processPage(second int64) []byte {
	p := &ownProcess
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once.Do(func() {
		p.all = prometheus.NewRegistry()
		p.all.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	})
	if p.second == second && p.page != nil {
		return p.page
	}
	families, err := p.all.Gather()
	var b bytes.Buffer
	for _, f := range families {
		switch f.GetName() {
		case "process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds",
			"process_cpu_seconds_total", "process_open_fds", "process_max_fds":
			if err == nil {
				_, err = expfmt.MetricFamilyToText(&b, f)
			}
		}
	}
	if err == nil { // otherwise the older values stay
		p.page = b.Bytes()
	}
	p.second = second
	return p.page
}
