package modelserver

import (
	"fmt"
	"net"
	"net/http"

	"github.com/windtunnel/windtunnel/core/serving"
)

// FaultHeader asks one server for a fault in one request, as
// "kind", "kind=value" or several of them separated by semicolons.
const FaultHeader = "X-Windtunnel-Fault"

// Fault is what goes wrong with one request. The zero Fault is none.
type Fault = serving.Fault

// ParseFault reads the value of FaultHeader.
func ParseFault(value string) (Fault, error) {
	f, err := serving.ParseFault(value)
	if err != nil {
		return Fault{}, fmt.Errorf("%s %q: %w", FaultHeader, value, err)
	}
	return f, nil
}

// cut breaks the connection under a request: abruptly with a reset, or by
// closing it. It does not return.
func cut(w http.ResponseWriter, reset bool) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // close then sends RST; failing that, FIN is a cut as well
		}
		_ = conn.Close()
	}
	// HTTP/2 resets the stream; a hijacked HTTP/1.1 handler just ends.
	panic(http.ErrAbortHandler)
}
