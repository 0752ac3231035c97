package modelserver

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// FaultHeader asks one server for a fault in one request, as
// "kind", "kind=value" or several of them separated by semicolons.
const FaultHeader = "X-Windtunnel-Fault"

// Fault is what goes wrong with one request. The zero Fault is none.
type Fault struct {
	// Refuse closes the connection before anything is read.
	Refuse bool
	// Reset breaks the connection (TCP RST, or a stream reset on HTTP/2)
	// before anything is answered.
	Reset bool
	// Status answers at once with this status; 204 and other bodiless ones
	// have no body.
	Status int
	// Delay waits before anything is answered.
	Delay time.Duration
	// DieInPrefill breaks the connection once the engine has begun the prompt.
	DieInPrefill bool
	// EndBeforePart2 ends the response after the first token without waiting
	// for part 2 of a held-open request.
	EndBeforePart2 bool
	// NoBody answers 200 and ends without a byte of body.
	NoBody bool
	// StallAfter stops sending after so many tokens and keeps the connection;
	// 0 stalls before the first token. Nil does not stall.
	StallAfter *int
	// ResetAfter breaks the connection after so many tokens.
	ResetAfter *int
	// LoseKV fails the KV transfer of a request that would pull blocks.
	LoseKV bool
}

// ParseFault reads the value of FaultHeader.
func ParseFault(value string) (Fault, error) {
	var f Fault
	if strings.TrimSpace(value) == "" {
		return f, nil
	}
	for item := range strings.SplitSeq(value, ";") {
		kind, arg, hasArg := strings.Cut(strings.TrimSpace(item), "=")
		if err := f.set(kind, arg, hasArg); err != nil {
			return Fault{}, fmt.Errorf("%s %q: %w", FaultHeader, value, err)
		}
	}
	return f, nil
}

func (f *Fault) set(kind, arg string, hasArg bool) error {
	number := func() (*int, error) {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: expected a number of tokens, got %q", kind, arg)
		}
		return &n, nil
	}
	var err error
	switch kind {
	case "refuse":
		f.Refuse = true
	case "reset":
		f.Reset = true
	case "die-in-prefill":
		f.DieInPrefill = true
	case "end-before-part2":
		f.EndBeforePart2 = true
	case "no-body":
		f.NoBody = true
	case "lose-kv":
		f.LoseKV = true
	case "stall":
		f.StallAfter = new(int)
		if hasArg {
			f.StallAfter, err = number()
		}
	case "reset-after":
		f.ResetAfter, err = number()
	case "status":
		f.Status, err = strconv.Atoi(arg)
		if err != nil || f.Status < 200 || f.Status > 599 {
			return fmt.Errorf("status: expected 200 to 599, got %q", arg)
		}
	case "delay":
		f.Delay, err = time.ParseDuration(arg)
		if err != nil || f.Delay < 0 || f.Delay > time.Hour {
			return fmt.Errorf("delay: expected a duration up to 1h, for example 200ms, got %q", arg)
		}
	default:
		return fmt.Errorf("unknown fault %q, expected refuse, reset, reset-after=N, status=CODE, delay=DURATION, die-in-prefill, "+
			"end-before-part2, no-body, lose-kv, stall or stall=N", kind)
	}
	return err
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
