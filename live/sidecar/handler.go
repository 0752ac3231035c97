package sidecar

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/header"
)

// ServeHTTP takes every request of a rank's port.
func (k *rank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case k.c.Generates(r.Method, r.URL.Path):
		k.s.inFlight.Add(1)
		defer k.s.inFlight.Add(-1)
		k.generate(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/metrics":
		k.page(w, r)
	default:
		var in disagg.Request
		if !k.take(r, &in) {
			return // the client has left
		}
		if in.Body != nil {
			r.Body = io.NopCloser(bytes.NewReader(in.Body))
		}
		k.straight.ServeHTTP(w, r)
	}
}

// reverseProxy passes on what a prefill elsewhere cannot concern.
func (k *rank) reverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(k.decoder)
			p.Out.Host = p.In.Host
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			forwarded(p.Out.Header, p.In.RemoteAddr)
			for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v := p.In.Header[name]; len(v) > 0 {
					p.Out.Header[name] = v // Rewrite has left them out
				}
			}
		},
		Transport: k.s.decodeWay,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // nobody is there any more
			}
			k.s.metrics.connectionErrors.Inc()
			refused(w, err)
		},
	}
}

// refused answers for a decode server that cannot be reached.
func refused(w http.ResponseWriter, err error) {
	x := disagg.New(&disagg.Config{}, disagg.Request{})
	var fx disagg.Effects
	x.Input(0, disagg.Start{}, &fx)
	x.Input(0, disagg.Failed{Leg: 1, Reason: err.Error(), Refused: isRefused(err)}, &fx)
	for _, e := range fx.List {
		if a, ok := e.Do.(disagg.Answer); ok {
			write(w, a.Status, a.Head, a.Body)
		}
	}
}

func write(w http.ResponseWriter, status int, head header.List, body []byte) {
	for _, h := range head {
		w.Header()[h.Name] = []string{h.Value}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left needs no answer
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// generate serves a request that generates tokens.
func (k *rank) generate(w http.ResponseWriter, r *http.Request) {
	in, ok := k.request(w, r)
	if !ok {
		return
	}
	e := &exchange{k: k, w: w, r: r, x: disagg.New(&k.c, in), body: in.Body}
	e.ctx, e.cancel = context.WithCancel(r.Context())
	e.run()
}

// request reads what the decision needs to know.
func (k *rank) request(w http.ResponseWriter, r *http.Request) (disagg.Request, bool) {
	s := k.s
	attempt, _ := strconv.Atoi(r.Header.Get("X-Envoy-Attempt-Count"))
	in := disagg.Request{Number: s.numbers.Add(1), ID: r.Header.Get(disagg.RequestIDHeader), Attempt: attempt,
		Method: r.Method, Path: r.URL.Path, Session: r.Header.Get(disagg.SessionHeader), Bytes: max(0, int(r.ContentLength))}
	in.Prefillers = disagg.ParseTargets(r.Header.Get(disagg.PrefillerHeader))
	if len(in.Prefillers) == 0 && s.o.SessionCache > 0 {
		in.Prefillers = s.prefillers()
	}
	if k.c.Encoder != "" {
		for _, list := range r.Header.Values(disagg.EncoderHeader) {
			in.Encoders = append(in.Encoders, disagg.ParseTargets(list)...)
		}
		in.Encoders = in.Encoders[:min(len(in.Encoders), disagg.MaxTargets)]
	}
	in.Source = disagg.ParseSource(r.Header.Get(disagg.SourceHeader))
	in.RankHost = r.Header.Get(disagg.RankHostHeader)
	if s.o.Protect {
		for _, list := range [][]disagg.Target{in.Prefillers, in.Encoders} {
			for i := range list {
				s.resolve(r.Context(), &list[i])
			}
		}
		if in.Source != nil {
			s.resolve(r.Context(), in.Source)
		}
	}
	if !k.c.Reads(&in) {
		return in, k.take(r, &in)
	}
	if s.peers != nil && len(in.Prefillers) > 0 {
		in.Peers = s.peers.now()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBodyBytes))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			write(w, http.StatusRequestEntityTooLarge, header.Of("Content-Type", "text/plain; charset=utf-8"), []byte("the request body is larger than "+strconv.FormatInt(large.Limit, 10)+" bytes"))
		}
		return in, false // the client has left
	}
	in.Body, in.Bytes = body, len(body)
	return in, true
}

// smallBody is how much of a body that goes straight through is read before it
// is sent on. Go's server closes a request's body when the answer begins, and
// Go's client, which may still be looking for the body's end then, breaks the
// connection to the decode server for that: a body in memory has no such race,
// and can be sent again on another connection.
const smallBody = 1 << 20

// take reads a small body into memory; a large one is sent on as it comes.
func (k *rank) take(r *http.Request, in *disagg.Request) bool {
	if r.ContentLength <= 0 || r.ContentLength > smallBody {
		return true
	}
	in.Body = make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, in.Body)
	return err == nil // or the client has left
}

// prefillers are session mode's, beginning with another one each time.
func (s *Sidecar) prefillers() []disagg.Target {
	list := s.fixed
	if len(list) == 0 {
		list = s.pool.known()
	}
	if len(list) == 0 {
		return nil
	}
	n := int(s.turn.Add(1)-1) % len(list)
	out := append(append([]disagg.Target(nil), list[n:]...), list[:n]...)
	return out[:min(len(out), disagg.MaxTargets)]
}

// resolve finds a name's address, which is what the allowlist knows.
func (s *Sidecar) resolve(ctx context.Context, t *disagg.Target) {
	if t.Bad != "" || t.Addr.IsValid() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.Host)
	if err != nil {
		t.Bad = err.Error()
		return
	}
	t.Addr = addrs[0].Unmap()
	s.locked(func() { // a name may stand for several; one that is allowed will do
		for _, a := range addrs {
			c := *t
			if c.Addr = a.Unmap(); s.pool.allow.Allows(&c) {
				t.Addr = c.Addr
				return
			}
		}
	})
}

// hopHeaders concern one connection and go no further.
var hopHeaders = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

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

// forwarded adds the client to x-forwarded-for.
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
