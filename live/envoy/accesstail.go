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
	Start time.Time `json:"-"`
	// RequestID is x-request-id: the client's, or Envoy's if the client sent none.
	RequestID string `json:"request_id"`
	Method    string `json:"method"`
	Path      string `json:"path"`
	// Protocol is the client's protocol: HTTP/1.1 or HTTP/2.
	Protocol string `json:"protocol"`
	// Status is the code that the client got; 0 if the client left before it.
	Status int `json:"status"`
	// Details names the origin of the code (Envoy's RESPONSE_CODE_DETAILS): via_upstream for the model server,
	// otherwise Envoy's reason.
	Details string `json:"details"`
	// Flags are Envoy's RESPONSE_FLAGS, such as UF (connection failure), UC
	// (connection ended), DC (client left), SI (idle timeout), NC (no cluster);
	// nil for none.
	Flags []string `json:"-"`
	// Termination is the reason why Envoy ended the client's connection, if it did.
	Termination string `json:"termination"`
	// Route, Cluster and Upstream (ip:port) describe the last attempt. UpstreamFailure is the reason why its connection
	// failed.
	Route           string `json:"route"`
	Cluster         string `json:"cluster"`
	Upstream        string `json:"upstream"`
	UpstreamFailure string `json:"upstream_failure"`
	// Attempts counts the attempts to reach a model server, including failed ones.
	Attempts int `json:"attempts"`
	// BytesIn and BytesOut are the bodies' sizes on the client's side.
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
	// Took is the request's duration, in whole milliseconds. If the client left, it is the only measure of the end that
	// Envoy reports.
	Took time.Duration `json:"-"`
	// Timeline holds times since Start.
	Timeline Timeline `json:"-"`
}

// Timeline holds the times at which a request reached each point, counted from its first byte. A point that the request
// did not reach is NotReached.
type Timeline struct {
	RequestRead       time.Duration `json:"request_read_us"`       // the client's last byte arrived
	UpstreamConnected time.Duration `json:"upstream_connected_us"` // the connection to the model server was established
	UpstreamBegun     time.Duration `json:"upstream_begun_us"`     // first byte to the model server
	UpstreamSent      time.Duration `json:"upstream_sent_us"`      // last byte to it: the end of a hold
	UpstreamFirst     time.Duration `json:"upstream_first_us"`     // first byte from it
	UpstreamLast      time.Duration `json:"upstream_last_us"`      // last byte from it
	ResponseFirst     time.Duration `json:"response_first_us"`     // first byte to the client
	ResponseLast      time.Duration `json:"response_last_us"`      // last byte to the client

	// PickerRequest and PickerResponse are how long Envoy waited for the endpoint picker's answers to the request's and
	// the response's headers.
	PickerRequest  time.Duration `json:"ext_proc_request_us,string"`
	PickerResponse time.Duration `json:"ext_proc_response_us,string"`
	// RouterRequest is how long Envoy waited for the body-based router's answer to the request's headers, before the
	// picker.
	RouterRequest time.Duration `json:"router_request_us,string"`
}

// NotReached marks a point of a Timeline that the request did not reach.
const NotReached time.Duration = -1

// accessLine is one line of the log as JSON; see accessLogFormat. The Timeline's times are microseconds.
type accessLine struct {
	*AccessRecord
	*Timeline
	Start      string `json:"start"`
	Flags      string `json:"flags"`
	DurationMS int64  `json:"duration_ms"`
}

// ParseAccessLine parses one line of the log.
func ParseAccessLine(line []byte) (AccessRecord, error) {
	var r AccessRecord
	t := &r.Timeline
	times := []*time.Duration{&t.RequestRead, &t.UpstreamConnected, &t.UpstreamBegun, &t.UpstreamSent, &t.UpstreamFirst,
		&t.UpstreamLast, &t.ResponseFirst, &t.ResponseLast, &t.PickerRequest, &t.PickerResponse, &t.RouterRequest}
	for _, d := range times {
		*d = NotReached
	}
	l := accessLine{AccessRecord: &r, Timeline: t}
	if err := json.Unmarshal(line, &l); err != nil {
		return AccessRecord{}, fmt.Errorf("access log line %q: %w", clip(string(line), 200), err)
	}
	for _, d := range times {
		if *d != NotReached {
			*d *= time.Microsecond
		}
	}
	for _, text := range []*string{&r.RequestID, &r.Method, &r.Path, &r.Protocol, &r.Details, &l.Flags, &r.Termination,
		&r.Route, &r.Cluster, &r.Upstream, &r.UpstreamFailure} {
		if *text == "-" { // Envoy's placeholder for an absent value, beside null
			*text = ""
		}
	}
	if l.Flags != "" {
		r.Flags = strings.Split(l.Flags, ",")
	}
	r.Took = time.Duration(l.DurationMS) * time.Millisecond
	var err error
	if r.Start, err = parseUnix(l.Start); err != nil {
		return AccessRecord{}, fmt.Errorf("access log line: start: %w", err)
	}
	return r, nil
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
