package sidecar

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/live/serve"
)

// ServeHTTP serves every request at a rank's port.
func (k *rank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case k.c.Generates(r.Method, r.URL.Path):
		k.s.inFlight.Add(1)
		defer k.s.inFlight.Add(-1)
		k.generate(w, r)
	case !k.s.o.DecoderHealth && disagg.Alive(r.Method, r.URL.Path):
		w.WriteHeader(http.StatusOK)
	case r.Method == http.MethodGet && r.URL.Path == "/metrics":
		k.page(w, r)
	default:
		if r.Method == http.MethodPost || r.ContentLength <= smallBody {
			body, ok := k.read(w, r)
			if !ok || !k.scrub(w, r, body) {
				return
			}
		}
		k.passThrough.ServeHTTP(w, r)
	}
}

// scrub restores the body of a request that goes straight through, without the parts that only the sidecar may set. It
// returns false if it has refused the request.
func (k *rank) scrub(w http.ResponseWriter, r *http.Request, body []byte) bool {
	clean, found, err := disagg.Scrub(body)
	if err != nil {
		write(w, http.StatusBadRequest, header.Of("Content-Type", "application/json"),
			disagg.ErrorBody(http.StatusBadRequest, "invalid JSON: "+err.Error()))
		return false
	}
	if len(found) > 0 {
		k.s.metrics.blocked.Inc()
		k.s.log.Warn("ssrf_blocked", "path", r.URL.Path, "fields", found)
	}
	if body != nil {
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(clean)), int64(len(clean)), nil
		r.Header.Set("Content-Length", strconv.Itoa(len(clean)))
	}
	return true
}

// reverseProxy serves requests that cannot involve a remote prefill.
func (k *rank) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(k.decoder)
			p.Out.Host = p.In.Host
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			forwarded(p.Out.Header, p.In.RemoteAddr)
			for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v := p.In.Header[name]; len(v) > 0 {
					p.Out.Header[name] = v // Rewrite has removed them
				}
			}
		},
		Transport: k.s.decodeWay,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client has left
			}
			var slow *serve.SlowBodyError
			if errors.As(err, &slow) {
				http.Error(w, slow.Error(), http.StatusRequestTimeout)
				return
			}
			k.s.metrics.connectionErrors.Inc()
			refused(w, err)
		},
	}
}

// refused answers for a decode server that cannot be reached.
func refused(w http.ResponseWriter, err error) {
	a := disagg.Failed{Reason: err.Error(), Refused: isRefused(err)}.Answer()
	write(w, a.Status, a.Head, a.Body)
}

func write(w http.ResponseWriter, status int, head header.List, body []byte) {
	for _, h := range head {
		w.Header()[h.Name] = []string{h.Value}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has left
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// generate serves a request that generates tokens.
func (k *rank) generate(w http.ResponseWriter, r *http.Request) {
	in, ok := k.request(w, r)
	if !ok {
		return
	}
	e := &clientRequest{k: k, w: w, r: r, x: disagg.New(&k.c, in), body: in.Body}
	e.ctx, e.cancel = context.WithCancel(r.Context())
	e.run()
}

// request reads the parts of a request that the decision needs.
func (k *rank) request(w http.ResponseWriter, r *http.Request) (disagg.Request, bool) {
	s := k.s
	attempt, _ := strconv.Atoi(r.Header.Get("X-Envoy-Attempt-Count"))
	in := disagg.Request{Number: s.numbers.Add(1), ID: r.Header.Get(disagg.RequestIDHeader), Attempt: attempt,
		Method: r.Method, Path: r.URL.Path, Session: r.Header.Get(disagg.SessionHeader),
		Bytes: max(0, int(r.ContentLength)), TraceParent: r.Header.Get(tracing.Header)}
	in.Prefillers = k.c.Prefillers(r.Header.Get(disagg.PrefillerHeader), s.prefillers)
	if k.c.Encoder != "" {
		for _, list := range r.Header.Values(disagg.EncoderHeader) {
			in.Encoders = append(in.Encoders, disagg.ParseTargets(list)...)
		}
		in.Encoders = in.Encoders[:min(len(in.Encoders), disagg.MaxTargets)]
	}
	in.Routed = disagg.ReadRouted(r.Header.Get)
	in.Source = disagg.ParseSource(r.Header.Get(disagg.SourceHeader))
	in.RankHost = r.Header.Get(disagg.RankHostHeader)
	if s.o.Protect {
		for _, list := range [][]disagg.Target{in.Prefillers, in.Encoders} {
			for i := range list {
				s.resolve(&list[i])
			}
		}
		if in.Source != nil {
			s.resolve(in.Source)
		}
	}
	if s.peers != nil && len(in.Prefillers) > 0 {
		in.Peers = s.peers.now()
	}
	var ok bool
	in.Body, ok = k.read(w, r)
	in.Bytes = len(in.Body)
	return in, ok
}

// smallBody limits how much memory read allocates for a Content-Length before the bytes arrive.
const smallBody = 1 << 20

// read reads a whole body, for two reasons. A client's own KV parameters in it must not get any further. And if Go's
// client streamed the body, it would break the connection to a decode server that begins its answer before the body's
// end. A nil body means an empty one. False means that read has answered or that the client has left.
func (k *rank) read(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if r.ContentLength == 0 {
		return nil, true
	}
	limit := k.s.o.MaxBodyBytes
	var err error
	switch n := r.ContentLength; {
	case n > limit:
		err = &http.MaxBytesError{Limit: limit}
	case n > 0 && n <= smallBody:
		body = make([]byte, n)
		_, err = io.ReadFull(r.Body, body)
	default:
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	}
	var large *http.MaxBytesError
	var slow *serve.SlowBodyError
	refuse := func(status int, text string) {
		w.Header().Set("Connection", "close") // the rest of the body is unread
		write(w, status, header.Of("Content-Type", "text/plain; charset=utf-8"), []byte(text))
	}
	switch {
	case errors.As(err, &large):
		refuse(http.StatusRequestEntityTooLarge,
			"the request body is larger than "+strconv.FormatInt(limit, 10)+" bytes")
	case errors.As(err, &slow):
		refuse(http.StatusRequestTimeout, slow.Error()+"; see --body-idle-timeout and --body-timeout")
	}
	return body, err == nil
}

// prefillers returns session mode's prefill servers.
func (s *Sidecar) prefillers() []disagg.Target {
	if len(s.fixed) > 0 {
		return s.fixed
	}
	return s.pool.known()
}

// resolve sets the address of a target that the pool knows by name. It does not look other names up, because they may
// not be called, and because a look-up would reveal them to a name server.
func (s *Sidecar) resolve(t *disagg.Target) {
	if t.Bad != "" || t.Addr.IsValid() {
		return
	}
	s.locked(func() { t.Addr = s.pool.names[t.Host] })
}

// hopHeaders concern one connection, so the sidecar does not forward them.
var hopHeaders = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func removeHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range hopHeaders {
		delete(h, name)
	}
}

// forwarded appends the client's address to x-forwarded-for.
func forwarded(h http.Header, remote string) {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return
	}
	client := a.Addr().Unmap().String()
	if before := h["X-Forwarded-For"]; len(before) > 0 {
		client = strings.Join(before, ", ") + ", " + client
	}
	h["X-Forwarded-For"] = []string{client}
}
