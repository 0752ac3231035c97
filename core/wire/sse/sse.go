// Package sse reads streams of server-sent events (WHATWG HTML, section 9.2.6), whatever the pieces in which they
// arrive.
package sse

import "bytes"

// Event is the text up to a blank line. It is valid until the next use of the scanner.
type Event struct {
	// Raw is the event as received, with its line ends and the blank line.
	Raw []byte
	// Data holds the values of the event's data lines, joined by newlines. It is nil where the event has none (a
	// comment that keeps the connection alive).
	Data []byte
}

// Scanner splits a stream into events. The zero Scanner has no limit.
type Scanner struct {
	// Limit is the number of bytes that the scanner keeps of an incomplete event; 0 is no limit.
	Limit int

	kept []byte // its memory
	buf  []byte // the bytes not yet returned: in kept or, until Next has read them, in the caller's memory
	line int    // the position in buf where the current line begins
	look int    // and up to which it has no end
	lf   bool   // the last line ended with \r: a \n now belongs to it

	lines int // data lines in this event
	from  int // the first one's value: buf[from:to]
	to    int
	more  []byte // all values, where there are several
}

// Write takes the next bytes. The scanner uses them until Next has returned all events in them.
func (s *Scanner) Write(p []byte) {
	if len(s.buf) == 0 {
		s.buf = p
		return
	}
	s.kept = append(s.buf, p...)
	s.buf = s.kept
}

// Next returns the next complete event, and false where there is none.
func (s *Scanner) Next() (Event, bool) {
	for s.look < len(s.buf) {
		if s.lf {
			s.lf = false
			if s.buf[s.look] == '\n' {
				s.look++
				s.line = s.look
				continue
			}
		}
		i := lineEnd(s.buf[s.look:])
		if i < 0 {
			s.look = len(s.buf)
			break
		}
		end := s.look + i
		s.lf = s.buf[end] == '\r'
		start := s.line
		s.look = end + 1
		s.line = s.look
		if start == end {
			if s.lf && s.look < len(s.buf) && s.buf[s.look] == '\n' {
				s.lf, s.look = false, s.look+1
			}
			return s.cut(s.look), true
		}
		s.read(start, end)
	}
	s.keep()
	return Event{}, false
}

// lineEnd returns the position where the first line ends, or -1.
func lineEnd(b []byte) int {
	n := bytes.IndexByte(b, '\n')
	if n < 0 {
		return bytes.IndexByte(b, '\r')
	}
	if r := bytes.IndexByte(b[:n], '\r'); r >= 0 {
		return r
	}
	return n
}

// read processes one line that is not blank.
func (s *Scanner) read(from, to int) {
	line := s.buf[from:to]
	if !bytes.HasPrefix(line, []byte("data")) {
		return
	}
	switch {
	case len(line) == 4:
		from = to
	case line[4] != ':':
		return
	case len(line) > 5 && line[5] == ' ':
		from += 6
	default:
		from += 5
	}
	if s.lines++; s.lines == 1 {
		s.from, s.to = from, to
		return
	}
	if s.lines == 2 {
		s.more = append(s.more[:0], s.buf[s.from:s.to]...)
	}
	s.more = append(append(s.more, '\n'), s.buf[from:to]...)
}

// cut returns the event that ends here.
func (s *Scanner) cut(end int) Event {
	e := Event{Raw: s.buf[:end:end]}
	switch {
	case s.lines == 1:
		e.Data = s.buf[s.from:s.to:s.to]
	case s.lines > 1:
		e.Data = s.more
	}
	s.buf = s.buf[end:]
	s.line, s.look, s.lines = 0, 0, 0
	return e
}

// keep copies the unread bytes out of the caller's memory.
func (s *Scanner) keep() {
	switch {
	case len(s.buf) == 0:
		s.buf = nil
		return
	case len(s.kept) > 0 && &s.buf[0] == &s.kept[0]:
		return // kept grows: a copy for each piece would be quadratic
	}
	s.kept = append(s.kept[:0], s.buf...)
	s.buf = s.kept
}

// Last returns the end of the stream as an event, where only the blank line after it is missing.
func (s *Scanner) Last() (Event, bool) {
	if len(s.buf) == 0 {
		return Event{}, false
	}
	if s.line < len(s.buf) {
		s.read(s.line, len(s.buf))
	}
	return s.cut(len(s.buf)), true
}

// Rest returns the bytes of the incomplete event at the end.
func (s *Scanner) Rest() []byte { return s.buf }

// TooLong reports whether an event is longer than Limit.
func (s *Scanner) TooLong() bool { return s.Limit > 0 && len(s.buf) > s.Limit }

// Append appends an event with this data, which must be one line.
func Append(b, data []byte) []byte {
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

// Replace appends the event with its data replaced by other data of one line. All its other lines stay the same.
func (e *Event) Replace(b, data []byte) []byte {
	rest, done := e.Raw, false
	for len(rest) > 0 {
		end := lineEnd(rest)
		if end < 0 {
			end = len(rest)
		}
		next := min(end+1, len(rest))
		if next < len(rest) && rest[end] == '\r' && rest[next] == '\n' {
			next++
		}
		if name, _, _ := bytes.Cut(rest[:end], []byte(":")); string(name) != "data" {
			b = append(b, rest[:next]...)
		} else if !done {
			done = true
			b = append(append(append(b, "data: "...), data...), rest[end:next]...)
		}
		rest = rest[next:]
	}
	return b
}
