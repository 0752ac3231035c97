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

// echo stands in for a container that nothing here simulates: it answers with what
// it was asked, as JSON, over HTTP/1.1 and HTTP/2 in the clear. Headers make it
// do more: X-Echo-Set-Header (name:value, …) sets headers of the answer, X-Echo-Status
// its status, X-Echo-Delay (a duration, also as the query parameter delay) lets it
// wait; with @ and a pod's name behind the value only this pod does so.
type echo struct {
	namespace, pod string
	at             []string // where it listens
	serving        serve.Group
	log            *slog.Logger
	failed         *lru.Cache[string, int] // attempts that were to fail, by uuid
}

// maxFailed bounds the requests whose failed attempts are counted.
const maxFailed = 10_000

// echoed is the answer.
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

// maxDelay bounds what a request asks to wait.
const maxDelay = time.Minute

func startEcho(namespace, pod string, addresses []string, log *slog.Logger) (*echo, error) {
	e := &echo{namespace: namespace, pod: pod, serving: serve.Group{Log: log}, log: log}
	e.failed, _ = lru.New[string, int](maxFailed) // it refuses only sizes below 1
	for _, at := range addresses {
		server := serve.Pages(http.HandlerFunc(e.answer), log)
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		at, err := e.serving.Serve("pod "+pod, at, server)
		if err != nil {
			e.stop(context.Background())
			return nil, err
		}
		e.at = append(e.at, at)
	}
	return e, nil
}

func (e *echo) answer(w http.ResponseWriter, r *http.Request) {
	port := portOf(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	e.log.Debug("pod answers", "namespace", e.namespace, "pod", e.pod, "path", r.RequestURI)
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil { // until then nobody tells that the client left
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

// fails answers the attempts of a request (uuid) that are to fail before one succeeds
// (succeedAfter): with the status responseCode, after delayRetry.
func (e *echo) fails(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	uuid := q.Get("uuid")
	after, err := strconv.Atoi(q.Get("succeedAfter"))
	status, code := strconv.Atoi(q.Get("responseCode"))
	if uuid == "" || err != nil || code != nil || status < 200 || status > 599 {
		return false
	}
	n, _ := e.failed.Get(uuid) // attempts of one request follow one another
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

func (e *echo) stop(ctx context.Context) {
	_ = e.serving.Stop(ctx) // of closing what nobody uses any more
	e.serving.Wait()
}
