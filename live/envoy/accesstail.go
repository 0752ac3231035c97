package envoy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// AccessRecord is Envoy's view of one finished request, from its access log.
type AccessRecord struct {
	// Start is when the request's first byte arrived, by the machine's clock.
	Start time.Time
	// RequestID is x-request-id: the client's, or Envoy's if the client sent none.
	RequestID    string
	Method, Path string
	// Protocol is the client's protocol: HTTP/1.1 or HTTP/2.
	Protocol string
	// Status is the code that the client got; 0 if the client left before it.
	Status int
	// Details names the origin of the code (Envoy's RESPONSE_CODE_DETAILS): via_upstream for the model server,
	// otherwise Envoy's reason.
	Details string
	// Flags are Envoy's RESPONSE_FLAGS, such as UF (connection failure), UC
	// (connection ended), DC (client left), SI (idle timeout), NC (no cluster);
	// nil for none.
	Flags []string
	// Termination is the reason why Envoy ended the client's connection, if it did.
	Termination string
	// Route, Cluster and Upstream (ip:port) describe the last attempt. UpstreamFailure is the reason why its connection
	// failed.
	Route, Cluster, Upstream string
	UpstreamFailure          string
	// Attempts counts the attempts to reach a model server, including failed ones.
	Attempts int
	// BytesIn and BytesOut are the bodies' sizes on the client's side.
	BytesIn, BytesOut int64
	// Took is the request's duration, in whole milliseconds. If the client left, it is the only measure of the end that
	// Envoy reports.
	Took time.Duration
	// Timeline holds times since Start.
	Timeline Timeline
}

// Timeline holds the times at which a request reached each point, counted from its first byte. A point that the request
// did not reach is NotReached.
type Timeline struct {
	RequestRead       time.Duration // the client's last byte arrived
	UpstreamConnected time.Duration // the connection to the model server was established
	UpstreamBegun     time.Duration // first byte to the model server
	UpstreamSent      time.Duration // last byte to it: the end of a hold
	UpstreamFirst     time.Duration // first byte from it
	UpstreamLast      time.Duration // last byte from it
	ResponseFirst     time.Duration // first byte to the client
	ResponseLast      time.Duration // last byte to the client

	// PickerRequest and PickerResponse are how long Envoy waited for the endpoint picker's answers to the request's and
	// the response's headers.
	PickerRequest, PickerResponse time.Duration
	// RouterRequest is how long Envoy waited for the body-based router's answer to the request's headers, before the
	// picker.
	RouterRequest time.Duration
}

// NotReached marks a point of a Timeline that the request did not reach.
const NotReached time.Duration = -1

// accessLine is one line of the log as JSON; see accessLogFormat.
type accessLine struct {
	Start           string  `json:"start"`
	RequestID       *string `json:"request_id"`
	Method          *string `json:"method"`
	Path            *string `json:"path"`
	Protocol        *string `json:"protocol"`
	Status          int     `json:"status"`
	Details         *string `json:"details"`
	Flags           *string `json:"flags"`
	Termination     *string `json:"termination"`
	Route           *string `json:"route"`
	Cluster         *string `json:"cluster"`
	Upstream        *string `json:"upstream"`
	UpstreamFailure *string `json:"upstream_failure"`
	Attempts        *int    `json:"attempts"`
	BytesIn         int64   `json:"bytes_in"`
	BytesOut        int64   `json:"bytes_out"`
	DurationMS      int64   `json:"duration_ms"`
	RequestRead     *int64  `json:"request_read_us"`
	Connected       *int64  `json:"upstream_connected_us"`
	Begun           *int64  `json:"upstream_begun_us"`
	Sent            *int64  `json:"upstream_sent_us"`
	First           *int64  `json:"upstream_first_us"`
	Last            *int64  `json:"upstream_last_us"`
	ResponseFirst   *int64  `json:"response_first_us"`
	ResponseLast    *int64  `json:"response_last_us"`
	PickerRequest   *string `json:"ext_proc_request_us"` // a number as text
	PickerResponse  *string `json:"ext_proc_response_us"`
	RouterRequest   *string `json:"router_request_us"`
}

// ParseAccessLine parses one line of the log.
func ParseAccessLine(line []byte) (AccessRecord, error) {
	var l accessLine
	if err := json.Unmarshal(line, &l); err != nil {
		return AccessRecord{}, fmt.Errorf("access log line %q: %w", clip(string(line), 200), err)
	}
	start, err := parseUnix(l.Start)
	if err != nil {
		return AccessRecord{}, fmt.Errorf("access log line: start: %w", err)
	}
	r := AccessRecord{
		Start: start, RequestID: text(l.RequestID),
		Method: text(l.Method), Path: text(l.Path), Protocol: text(l.Protocol),
		Status: l.Status, Details: text(l.Details), Termination: text(l.Termination),
		Route: text(l.Route), Cluster: text(l.Cluster), Upstream: text(l.Upstream),
		UpstreamFailure: text(l.UpstreamFailure),
		BytesIn:         l.BytesIn, BytesOut: l.BytesOut, Took: time.Duration(l.DurationMS) * time.Millisecond,
		Timeline: Timeline{
			RequestRead: span(l.RequestRead), UpstreamConnected: span(l.Connected),
			UpstreamBegun: span(l.Begun), UpstreamSent: span(l.Sent),
			UpstreamFirst: span(l.First), UpstreamLast: span(l.Last),
			ResponseFirst: span(l.ResponseFirst), ResponseLast: span(l.ResponseLast),
			PickerRequest: spanText(l.PickerRequest), PickerResponse: spanText(l.PickerResponse),
			RouterRequest: spanText(l.RouterRequest),
		},
	}
	if l.Attempts != nil {
		r.Attempts = *l.Attempts
	}
	if f := text(l.Flags); f != "" {
		r.Flags = strings.Split(f, ",")
	}
	return r, nil
}

// text converts Envoy's placeholders for an absent value to "".
func text(s *string) string {
	if s == nil || *s == "-" {
		return ""
	}
	return *s
}

func span(us *int64) time.Duration {
	if us == nil {
		return NotReached
	}
	return time.Duration(*us) * time.Microsecond
}

func spanText(us *string) time.Duration {
	n, err := strconv.ParseInt(text(us), 10, 64)
	if err != nil {
		return NotReached
	}
	return span(&n)
}

// parseUnix parses seconds with nine digits after the point, without loss of precision.
func parseUnix(s string) (time.Time, error) {
	whole, frac, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not seconds since 1970", clip(s, 40))
	}
	nano, err := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
	if err != nil || nano < 0 {
		return time.Time{}, fmt.Errorf("%q is not seconds since 1970", clip(s, 40))
	}
	return time.Unix(sec, nano), nil
}

// maxLineBytes limits one line. Lines contain clients' request ids and paths; Envoy limits headers to 60 KiB.
const maxLineBytes = 1 << 20

// AccessLogTail follows the access log of a running Envoy.
type AccessLogTail struct {
	file *os.File
	r    *bufio.Reader
	part []byte          // an incomplete line
	done <-chan struct{} // closed when Envoy has ended
	tick *time.Ticker
}

// FollowAccessLog starts at the log's first line.
func (p *Process) FollowAccessLog() (*AccessLogTail, error) {
	f, err := os.Open(p.Config.AccessLog)
	if err != nil {
		return nil, err
	}
	return &AccessLogTail{
		file: f,
		r:    bufio.NewReaderSize(f, 64<<10),
		done: p.Done(),
		tick: time.NewTicker(flushInterval / 2),
	}, nil
}

// Next returns the next record, in the order in which requests ended, and waits for it if necessary. After Envoy has
// ended and the log is read, it returns io.EOF. For a line that cannot be parsed it returns an error, and the next call
// continues behind that line. Lines reach the log up to 50 ms after the request's end, and all of them before
// Process.Stop returns.
func (t *AccessLogTail) Next(ctx context.Context) (AccessRecord, error) {
	for {
		ended := false
		select {
		case <-t.done:
			ended = true // the log is complete now
		default:
		}
		line, err := t.line()
		if err == nil {
			return ParseAccessLine(line)
		}
		if !errors.Is(err, io.EOF) || ended {
			return AccessRecord{}, err
		}
		select {
		case <-ctx.Done():
			return AccessRecord{}, ctx.Err()
		case <-t.done:
		case <-t.tick.C:
		}
	}
}

// line returns the next complete line, or io.EOF if there is none yet.
func (t *AccessLogTail) line() ([]byte, error) {
	more, err := t.r.ReadSlice('\n')
	t.part = append(t.part, more...)
	if len(t.part) > maxLineBytes {
		t.part = nil
		return nil, fmt.Errorf("access log: a line longer than %d bytes", maxLineBytes)
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		return t.line()
	}
	if err != nil {
		return nil, err
	}
	line := bytes.TrimSpace(t.part)
	t.part = nil
	return line, nil
}

// Close stops following the log. Next must not be running.
func (t *AccessLogTail) Close() error {
	t.tick.Stop()
	return t.file.Close()
}
