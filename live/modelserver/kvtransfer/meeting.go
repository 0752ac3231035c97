package kvtransfer

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/live/serve"
)

// With SGLang, Mooncake and the offloading connector, the sidecar sends the prefill leg and the decode leg at once.
// Both legs carry a key by which the two servers find each other: SGLang's bootstrap_room, Mooncake's transfer_id, the
// offloading connector's kv_request_id. The decode server reserves its blocks, and asks at the prefill server's meeting
// port for the cache of that key. It gets an answer when the prompt is computed, and then transfers the bytes as NIXL
// does. It gives up a prefill that never comes after the time for which blocks are held.
//
// The meeting port speaks the side channel's protocol, and enough HTTP to answer Mooncake's sidecar, which asks for the
// engine's id (GET /query).

// openMeeting listens at the meeting port if the connector needs one.
func (e *End) openMeeting() error {
	port := e.o.Profile.MeetingPort
	if port == 0 && e.o.Meeting == "" {
		return nil
	}
	if e.o.Meeting != "" {
		return e.meeting.open(e.o.Meeting)
	}
	if e.o.KVRole == connector.RoleConsumer && port == link.BootstrapPort {
		return nil // no server asks here; the port stays free for prefill servers
	}
	address := net.JoinHostPort(e.o.ListenHost, strconv.Itoa(port))
	if err := e.meeting.open(address); err != nil {
		e.o.Log.Warn("no meeting port: decode servers will not find this one's caches; give it an address of its own",
			"server", e.o.Name, "connector", e.o.Profile.Name, "address", address, "error", err)
	}
	return nil
}

// MeetingAddress returns the address of the server's meeting port, or "" without one.
func (e *End) MeetingAddress() string {
	e.meeting.mu.Lock()
	defer e.meeting.mu.Unlock()
	if e.meeting.listener == nil {
		return ""
	}
	return e.meeting.listener.Addr().String()
}

// MeetsAt reports whether an address is this server's own meeting port.
func (e *End) MeetsAt(host string, port int) bool {
	own, err := netip.ParseAddrPort(e.MeetingAddress())
	if err != nil || int(own.Port()) != port {
		return false
	}
	if host == e.host {
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

// isHTTP reports whether the peer speaks HTTP.
func (c *channel) isHTTP(conn net.Conn, r *bufio.Reader) bool {
	_ = conn.SetDeadline(time.Now().Add(sideTimeout))
	b, err := r.Peek(4)
	return err == nil && string(b) == "GET "
}

// bootstrap answers GET /query as Mooncake's bootstrap server does: it names the engine of each data-parallel rank. At
// the side channel, where users check with curl that they can connect (document 003, troubleshooting 4), it names the
// connector and the engine. It answers one request for each connection.
func (c *channel) bootstrap(conn net.Conn, r *bufio.Reader) {
	line, err := r.ReadSlice('\n')
	path := strings.Fields(string(line))
	for err == nil && len(strings.TrimSpace(string(line))) > 0 {
		line, err = r.ReadSlice('\n')
	}
	if err != nil {
		return
	}
	status, body := connector.Answer(append(path, "", "")[1], c.e.o.EngineID)
	if c == &c.e.side {
		status, body = "200 OK", fmt.Appendf(nil, `{"side_channel":%q,"engine_id":%q}`, c.e.o.Profile.Name,
			c.e.o.EngineID)
	}
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: "+
		"close\r\n\r\n%s", status, len(body), body)
}
