// Package web serves the page that shows a run to browsers on this machine. A Book reads the same events as the
// terminal's lines, and bounds everything that it keeps. All files are embedded; the page loads nothing from
// elsewhere. Begin with Start.
package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// Meta describes the run that the page shows.
type Meta struct {
	// Mode is live, sim or replay. File is the name of the scenario's or recording's file.
	Mode     string `json:"mode"`
	File     string `json:"file,omitempty"`
	Scenario string `json:"scenario,omitempty"`
	Seed     uint64 `json:"seed"`
	Version  string `json:"version"`
	// Gateway is the address for requests to a live run.
	Gateway string `json:"gateway,omitempty"`
	// Envoy and BBR report whether the run has a gateway, and a body-based router before the pickers. KVManager
	// reports whether pickers query a KV-Cache Manager.
	Envoy     bool   `json:"envoy"`
	BBR       bool   `json:"bbr,omitempty"`
	KVManager bool   `json:"kvManager,omitempty"`
	Pools     []Pool `json:"pools"`
	// Own means that a live run sends requests of its own.
	Own bool `json:"own,omitempty"`
	// Do lists the possible actions. WhatIf reports whether the run has a log of inputs.
	Do     []Action `json:"do,omitempty"`
	WhatIf bool     `json:"whatIf,omitempty"`
	// Search is a search whose best configuration is the run's.
	Search *Search `json:"search,omitempty"`
}

// Pool is one pool of the run.
type Pool struct {
	Name    string  `json:"name"`
	Held    bool    `json:"held,omitempty"`
	Config  string  `json:"config,omitempty"` // of its endpoint picker
	Groups  []Group `json:"groups"`
	Sidecar bool    `json:"sidecar,omitempty"`
	// Lives means that servers come and go. Each exists from its step server_started on.
	Lives bool `json:"lives,omitempty"`
}

// Group is a group of servers with equal settings.
type Group struct {
	Name      string   `json:"name,omitempty"`
	Prefill   bool     `json:"prefill,omitempty"`
	Endpoints []string `json:"endpoints"`
	// Settings is the servers' configuration in force, as text.
	Settings string `json:"settings,omitempty"`
}

// Options configure a Server.
type Options struct {
	Book *Book
	// Port is the port to listen on, at the loopback address; 0 means any free one.
	Port int
	// Meta is the run's description. Server.Describe can replace it later.
	Meta Meta
}

// Server serves the page.
type Server struct {
	book   *Book
	site   *site
	http   *http.Server
	token  string
	port   string
	meta   atomic.Pointer[Meta]
	state  atomic.Pointer[sources]
	open   atomic.Int32  // open streams
	asking chan struct{} // full while a what-if question is answered
	stop   chan struct{}
	done   chan struct{}
}

// sources holds the functions that a run provides after the page has started.
type sources struct {
	inputs func(each func(line []byte) error) error
	do     func(ctx context.Context, a Act) (string, error)
	part   func(ctx context.Context, id string) (Part, error)
}

// Limits for browsers.
const (
	maxStreams   = 8
	maxPost      = 1 << 20
	frameEvery   = 100 * time.Millisecond
	metricsEvery = time.Second
	lateAfter    = 5 * time.Second // a browser that reads nothing for this long is disconnected
	heartbeat    = 15 * time.Second
)

// Start serves the page on the loopback address. Errors have the code exit.Environment.
func Start(o Options) (*Server, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(o.Port)))
	if err != nil {
		return nil, exit.Hint(exit.Environment, fmt.Errorf("cannot listen for the page: %w", err),
			"choose another port with --ui-port N")
	}
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	s := &Server{book: o.Book, site: theSite(), token: hex.EncodeToString(secret[:]), asking: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{})}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	s.Describe(o.Meta)
	s.state.Store(&sources{})
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 1 << 16}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // ends by Stop; if listening fails, browsers show it
	}()
	return s, nil
}

// Describe replaces the description of the run.
func (s *Server) Describe(m Meta) { s.meta.Store(&m) }

// Inputs sets the function that reads the log of the pickers' inputs, for what-if questions.
func (s *Server) Inputs(each func(each func(line []byte) error) error) {
	s.change(func(p *sources) { p.inputs = each })
}

// Acts sets the function that carries out actions of the page's user.
func (s *Server) Acts(do func(ctx context.Context, a Act) (string, error)) {
	s.change(func(p *sources) { p.do = do })
}

func (s *Server) change(f func(p *sources)) {
	p := *s.state.Load()
	f(&p)
	s.state.Store(&p)
}

// Link returns the URL that opens the page. Its token allows everything that the page can do.
func (s *Server) Link() string { return "http://127.0.0.1:" + s.port + "/?token=" + s.token }

// Stop closes every stream and returns when the server has ended.
func (s *Server) Stop(ctx context.Context) error {
	close(s.stop)
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

// cookie returns the cookie's name. It contains the port, because browsers share cookies between all ports of a host.
func (s *Server) cookie() string { return "windtunnel-" + s.port }

// ServeHTTP answers requests to this machine's address that have the token and do not come from another site's page.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, value := range map[string]string{"Content-Security-Policy": s.site.policy,
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
		h.Set(name, value)
	}
	switch {
	case !header.Loopback(r.Host) || !strings.HasSuffix(r.Host, ":"+s.port):
		refuse(w, http.StatusMisdirectedRequest, "Not this host",
			"This page is served to 127.0.0.1:"+s.port+" alone; the request named another host.")
	case !s.sameSite(r):
		refuse(w, http.StatusForbidden, "Request from another page", "Only the page itself may request this.")
	case r.URL.Path == "/" && r.Method == http.MethodGet && equal(r.URL.Query().Get("token"), s.token):
		http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.token, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		s.serve(w, r) // the page removes the token from the address bar
	case !s.known(r):
		refuse(w, http.StatusForbidden, "Link required",
			"Open the link that windtunnel printed: its token gives this browser access.")
	default:
		s.serve(w, r)
	}
}

// serve answers an authorized request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if a := s.site.assets[r.URL.Path]; a != nil && r.Method == http.MethodGet {
		h.Set("Content-Type", a.kind)
		h.Set("Content-Encoding", "gzip")
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
		_, _ = w.Write(a.zip)
		return
	}
	type route struct {
		method string
		answer func(http.ResponseWriter, *http.Request)
	}
	x, ok := map[string]route{
		"/": {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
			h.Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(s.site.index)
		}},
		"/data/meta":    {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.meta.Load()) }},
		"/data/stream":  {http.MethodGet, s.stream},
		"/data/request": {http.MethodGet, s.request},
		"/data/part":    {http.MethodGet, s.part},
		"/data/share":   {http.MethodGet, s.share},
		"/data/whatif":  {http.MethodPost, s.ask},
		"/data/do":      {http.MethodPost, s.act},
	}[r.URL.Path]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "Not found", "There is no such page.")
	case x.method != r.Method:
		h.Set("Allow", x.method)
		refuse(w, http.StatusMethodNotAllowed, "Not so", "Expected "+x.method+".")
	default:
		x.answer(w, r)
	}
}

// stream sends frames as server-sent events, as long as the browser reads them.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if s.open.Add(1) > maxStreams {
		s.open.Add(-1)
		refuse(w, http.StatusTooManyRequests, "Too many pages",
			fmt.Sprintf("%d pages are open on this run; close one.", maxStreams))
		return
	}
	defer s.open.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	write := func(parts ...[]byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(lateAfter))
		for _, p := range parts {
			if _, err := w.Write(p); err != nil {
				return false
			}
		}
		return control.Flush() == nil
	}
	c := cursor{}
	flush := func(metrics []byte) (sent, ok bool) { // a snapshot is sent at once, later frames at intervals
		for f := s.book.frame(&c, metrics); f != nil; f = s.book.frame(&c, nil) {
			if sent = true; !write([]byte("data: "), f, []byte("\n\n")) {
				return true, false
			}
			if c.snap < 0 {
				break
			}
		}
		return sent, true
	}
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	var measured time.Time
	spoke, metrics, last, meta := time.Now(), []byte(nil), []byte(nil), (*Meta)(nil)
	for {
		if m := s.meta.Load(); m != meta {
			meta = m
			text, err := json.Marshal(struct {
				Meta *Meta `json:"meta"`
			}{m})
			if err != nil || !write([]byte("data: "), text, []byte("\n\n")) {
				return
			}
		}
		if metrics = nil; time.Since(measured) >= metricsEvery {
			measured = time.Now()
			if metrics = s.book.measured(); bytes.Equal(metrics, last) {
				metrics = nil
			} else {
				last = metrics
			}
		}
		if sent, ok := flush(metrics); !ok {
			return
		} else if sent {
			spoke = time.Now()
		}
		if time.Since(spoke) >= heartbeat {
			if !write([]byte(":\n\n")) {
				return
			}
			spoke = time.Now()
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.stop: // the page shows the end of the run, not a lost connection
			if _, ok := flush(s.book.measured()); ok {
				write([]byte("data: {\"ended\":true}\n\n"))
			}
			return
		}
	}
}

// request answers with all steps of one request.
func (s *Server) request(w http.ResponseWriter, r *http.Request) {
	steps, missing, ok := s.book.Steps(r.URL.Query().Get("id"))
	if !ok {
		problem(w, http.StatusNotFound, "this request is unknown, or no longer kept")
		return
	}
	writeJSON(w, map[string]any{"events": json.RawMessage(steps), "missing": missing})
}

// sameSite reports whether a request comes from the page itself or from a link that a person opened.
func (s *Server) sameSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if r.Method == http.MethodGet && r.URL.Path == "/" { // a link may be opened from anywhere
		return site != "cross-site" || r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
			r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	if site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin != "" && origin != "http://"+r.Host {
		return false
	}
	return r.Method == http.MethodGet || origin != "" &&
		strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// known reports whether a browser has the token's cookie.
func (s *Server) known(r *http.Request) bool {
	c, err := r.Cookie(s.cookie())
	return err == nil && equal(c.Value, s.token)
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// writeJSON answers with JSON.
func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// problem answers a program with an error.
func problem(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body, _ := json.Marshal(map[string]string{"error": text}) // text can always be encoded
	_, _ = w.Write(body)
}

// refuse answers a person with an error page.
func refuse(w http.ResponseWriter, status int, title, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(refusal(title, text))
}

// read decodes the JSON that a page posts.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPost))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.Decode(new(any)) != io.EOF {
		err = errors.New("more than one value")
	}
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}
