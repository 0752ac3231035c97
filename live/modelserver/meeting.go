package modelserver

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/live/serve"
)

// With SGLang, Mooncake and the offloading connector the sidecar sends prefill
// and decode leg at once. The two servers know of each other by a key in both
// legs: SGLang's bootstrap_room, Mooncake's transfer_id, the offloading
// connector's kv_request_id. The decode server reserves its blocks and asks at
// the prefill server's meeting port for the cache of that key; it gets an answer
// when the prompt is computed, and then moves the bytes as it does for NIXL. A
// prefill that never comes is given up after the time for which blocks are held.
//
// The meeting port speaks the side channel's language, and enough HTTP to tell
// Mooncake's sidecar which engine is here (GET /query).

// DefaultPeerPort is the offloading connector's usual meeting port.
const DefaultPeerPort = disagg.DefaultP2PPort

// meetingPorts are the usual ones.
var meetingPorts = map[string]int{
	link.SGLang.Name: disagg.DefaultBootstrapPort, link.Mooncake.Name: disagg.DefaultBootstrapPort, link.Offloading.Name: disagg.DefaultP2PPort,
}

// openMeeting listens at the meeting port where the connector needs one.
func (s *Server) openMeeting() error {
	port := meetingPorts[s.connector().Name]
	if port == 0 && s.opts.Meeting == "" {
		return nil
	}
	s.meeting.mu.Lock()
	defer s.meeting.mu.Unlock()
	if s.opts.Meeting != "" {
		return s.meeting.listen(s.opts.Meeting)
	}
	if s.opts.KVRole == modelserver.RoleConsumer && port == disagg.DefaultBootstrapPort {
		return nil // nobody asks here; the port is left to those who prefill
	}
	address := net.JoinHostPort(s.listenHost(), strconv.Itoa(port))
	if err := s.meeting.listen(address); err != nil {
		s.log.Warn("no meeting port: decode servers will not find this one's caches; give it an address of its own", "server", s.name, "connector", s.connector().Name, "address", address, "error", err)
	}
	return nil
}

// connector is how this server's caches travel; a server outside a fleet has
// none.
func (s *Server) connector() *link.Profile {
	if s.network == nil {
		return &link.Profile{}
	}
	return &s.network.profile
}

// MeetingAddress is where the server's meeting port is, or empty.
func (s *Server) MeetingAddress() string {
	s.meeting.mu.Lock()
	defer s.meeting.mu.Unlock()
	if s.meeting.listener == nil {
		return ""
	}
	return s.meeting.listener.Addr().String()
}

// meetsAt tells whether an address is this server's own meeting port.
func (s *Server) meetsAt(host string, port int) bool {
	own, err := netip.ParseAddrPort(s.MeetingAddress())
	if err != nil || int(own.Port()) != port {
		return false
	}
	if host == s.host {
		return true
	}
	a, err := netip.ParseAddr(host)
	if host == "localhost" {
		a, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	switch a = a.Unmap(); {
	case err != nil:
		return false
	case own.Addr().IsUnspecified():
		return a.IsLoopback() || slices.Contains(serve.OwnAddresses(), a)
	}
	return a == own.Addr().Unmap() || host == "localhost" && own.Addr().IsLoopback()
}

// name makes a cache findable by its key.
func (h *holds) name(x *hold, key string) {
	if key == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.named == nil {
		h.named = map[string]*hold{}
	}
	if h.named[key] == nil { // of several completions the first
		x.key, h.named[key] = key, x
	}
	for _, c := range h.waiting[key] {
		close(c)
	}
	delete(h.waiting, key)
}

// byKey is the cache of a key, or a channel that is closed when it is there.
func (h *holds) byKey(key string) (*hold, chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.named[key]; x != nil {
		return x, nil
	}
	if h.waiting == nil {
		h.waiting = map[string][]chan struct{}{}
	}
	c := make(chan struct{})
	h.waiting[key] = append(h.waiting[key], c)
	return nil, c
}

// forget ends a wait.
func (h *holds) forget(key string, c chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.waiting[key][:0]
	for _, o := range h.waiting[key] {
		if o != c {
			left = append(left, o)
		}
	}
	if h.waiting[key] = left; len(left) == 0 {
		delete(h.waiting, key)
	}
}

// await waits for the cache of a key for as long as blocks are held, or until
// the asker leaves: an asker that waits says nothing.
func (c *sideChannel) await(conn net.Conn, r *bufio.Reader, key string) *hold {
	x, there := c.s.holds.byKey(key)
	if x != nil {
		return x
	}
	_ = conn.SetDeadline(time.Time{})
	if writeLine(conn, sideAnswer{OK: true, Waiting: true}) != nil {
		c.s.holds.forget(key, there)
		return nil
	}
	left := make(chan struct{})
	go func() {
		_, _ = r.Peek(1) // the next thing that it says, or its end
		close(left)
	}()
	limit := time.NewTimer(c.s.cfg.KVHoldTimeout.Duration())
	defer limit.Stop()
	select {
	case <-there:
		x, there = c.s.holds.byKey(key) // or it is gone again already
	case <-left:
	case <-limit.C:
	}
	if x == nil {
		c.s.holds.forget(key, there)
	}
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the Peek
	<-left
	return x
}

// isHTTP looks whether somebody speaks HTTP.
func (c *sideChannel) isHTTP(conn net.Conn, r *bufio.Reader) bool {
	if c != &c.s.meeting {
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(sideTimeout))
	b, err := r.Peek(4)
	return err == nil && string(b) == "GET "
}

// bootstrap answers GET /query as Mooncake's bootstrap server does: the engine
// of each data-parallel rank. One answer is all that it gives.
func (c *sideChannel) bootstrap(conn net.Conn, r *bufio.Reader) {
	line, err := r.ReadSlice('\n')
	path := strings.Fields(string(line))
	for err == nil && len(strings.TrimSpace(string(line))) > 0 {
		line, err = r.ReadSlice('\n')
	}
	if err != nil {
		return
	}
	status, body := "404 Not Found", "{}"
	if len(path) > 1 && path[1] == "/query" {
		status, body = "200 OK", fmt.Sprintf(`{"0":{"engine_id":%q}}`, c.s.reader.EngineID)
	}
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body)
}

// cachedTokens is how much of a prompt's beginning this server has in its
// prefix cache.
func (s *Server) cachedTokens(hashes []uint64) int {
	n := 0
	s.loop.ask(func(machine.Time) { n = s.loop.eng.CachedPrefix(hashes) })
	return n * s.cfg.BlockSize
}

// fromOthers lets a completion begin with blocks that the external cache or
// another server's cache has.
func (s *Server) fromOthers(g *generation, q *seq) {
	store, source := s.connector().ViaStore, q.request.KV.Source
	if !store && source == nil || s.cfg.DisablePrefixCaching || q.remote != nil {
		return
	}
	hashes := s.reader.PromptHashes(q.request, q.Sequence)
	tokens := 0
	var from *modelserver.RemoteKV
	switch {
	case store:
		q.stores = hashes
		n, writer := s.fleet.external.find(hashes, s.index)
		tokens, from = n*s.cfg.BlockSize, &modelserver.RemoteKV{Stored: true, Writer: writer}
	case source != nil:
		a := s.ask(g.ctx, source, hashes)
		tokens, from = a.Tokens, &modelserver.RemoteKV{Stored: true, Writer: s.nodeOf(a.EngineID)}
	}
	if tokens > 0 {
		q.remote = from
		q.Submit.Remote = engine.RemoteKV{From: remoteEngine, Tokens: min(tokens, len(q.Prompt.Tokens))}
	}
}

// onPrefilled puts a prompt's blocks into the external cache.
func (s *Server) onPrefilled(q *seq) {
	if q.stores != nil {
		s.fleet.external.put(q.stores, s.index)
		q.stores = nil
	}
}
