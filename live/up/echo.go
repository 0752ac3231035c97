package up

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// echo stands in for a container that is not simulated. It answers each request with the request's properties as JSON,
// over HTTP/1.1 and HTTP/2 without TLS. Headers of the request change the answer: X-Echo-Set-Header (name:value, …)
// sets headers, X-Echo-Status sets the status, and X-Echo-Delay, or the query parameter delay, delays it by a duration.
// If the value ends with @ and a pod's name, only that pod obeys.
type echo struct {
	namespace, pod string
	serving        serve.Group
	log            *slog.Logger
	failed         *lru.Cache[string, int] // counts of failed attempts, by uuid
}

// maxFailed bounds the requests whose failed attempts are counted.
const maxFailed = 10_000

// echoed is the JSON of an answer.
type echoed struct {
	Path      string              `json:"path"`
	Host      string              `json:"host"`
	Method    string              `json:"method"`
	Proto     string              `json:"proto"`
	Headers   map[string][]string `json:"headers"`
	Port      string              `json:"httpPort"`
	Namespace string              `json:"namespace"`
	Pod       string              `json:"pod"`
	Bytes     int64               `json:"bodyBytes"`
}

// maxDelay limits the delay that a request may ask for.
const maxDelay = time.Minute

// startStandIn starts an echo at all ports of the pod.
func (u *Up) startStandIn(p *pod) error {
	e := &echo{namespace: p.PodNamespace, pod: p.PodName, serving: serve.Group{Log: u.Log}, log: u.Log}
	e.failed, _ = lru.New[string, int](maxFailed) // fails only for sizes below 1
	p.Stops(e.stop)
	for _, n := range p.Ports {
		server := serve.Pages(http.HandlerFunc(e.answer), u.Log)
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		at, err := e.serving.Serve("pod "+p.PodName, p.On(n), server)
		if err != nil {
			return err
		}
		p.At[n] = at
	}
	return nil
}

func (e *echo) answer(w http.ResponseWriter, r *http.Request) {
	_, port, _ := net.SplitHostPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	e.log.Debug("pod answers", "namespace", e.namespace, "pod", e.pod, "path", r.RequestURI)
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil { // before the body's end, only this error shows that the client left
		return
	}
	mine := func(text string) string {
		value, pod, one := strings.Cut(text, "@")
		if one && pod != e.pod {
			return ""
		}
		return value
	}
	for _, text := range []string{r.URL.Query().Get("delay"), r.Header.Get("X-Echo-Delay")} {
		if d, err := time.ParseDuration(mine(text)); err == nil && !pause.For(r.Context(), min(d, maxDelay)) {
			return
		}
	}
	for _, pair := range strings.Split(strings.Join(r.Header.Values("X-Echo-Set-Header"), ","), ",") {
		if name, value, ok := strings.Cut(pair, ":"); ok {
			w.Header().Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	if e.fails(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if status, err := strconv.Atoi(mine(r.Header.Get("X-Echo-Status"))); err == nil && status >= 200 && status <= 599 {
		w.WriteHeader(status)
	}
	if err := json.NewEncoder(w).Encode(
		echoed{r.RequestURI, r.Host, r.Method, r.Proto, r.Header, port, e.namespace, e.pod, size}); err != nil &&
		!errors.Is(err, net.ErrClosed) {
		return // the client has left
	}
}

// fails makes the first attempts of a request (uuid) fail. The parameter succeedAfter is the number of failures,
// responseCode their status, and delayRetry their delay. It returns true if it has answered, or if the
// client has left.
func (e *echo) fails(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	uuid := q.Get("uuid")
	after, err := strconv.Atoi(q.Get("succeedAfter"))
	status, code := strconv.Atoi(q.Get("responseCode"))
	if uuid == "" || err != nil || code != nil || status < 200 || status > 599 {
		return false
	}
	n, _ := e.failed.Get(uuid) // a request's attempts are sequential
	if n >= after {
		return false
	}
	e.failed.Add(uuid, n+1)
	if d, err := time.ParseDuration(q.Get("delayRetry")); err == nil && !pause.For(r.Context(), min(d, maxDelay)) {
		return true
	}
	w.WriteHeader(status)
	return true
}

func (e *echo) stop(ctx context.Context) error {
	defer e.serving.Wait()
	return e.serving.Stop(ctx)
}
