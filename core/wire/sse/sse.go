// Package sse reads streams of server-sent events (WHATWG HTML, section 9.2.6),
// however they are cut on their way.
package sse

import "bytes"

// Event is what stands up to a blank line. It is valid until the scanner is
// used again.
type Event struct {
	// Raw is the event as it came, with its line ends and the blank line.
	Raw []byte
	// Data are the values of its data lines, joined by newlines; nil where it has
	// none (a comment that keeps the connection alive).
	Data []byte
}

// Scanner cuts a stream into events. The zero Scanner has no limit.
type Scanner struct {
	// Limit is how many bytes of an event that is not whole are kept; 0 is no
	// limit.
	Limit int

	kept []byte // its memory
	buf  []byte // what is not handed out: kept, or until it is read the caller's
	line int    // where in buf the line begins that is being read
	look int    // and up to where it has no end
	lf   bool   // the last line ended with \r: a \n now belongs to it

	lines int // of data, in this event
	from  int // the first one's value: buf[from:to]
	to    int
	more  []byte // all values, where there are several
}

// Write takes the next bytes, which the scanner uses until Next has handed out
// all events in them.
func (s *Scanner) Write(p []byte) {
	if len(s.buf) == 0 {
		s.buf = p
		return
	}
	s.kept = append(s.buf, p...)
	s.buf = s.kept
}

// Next returns the next whole event, and whether there is one.
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

// lineEnd is where the first line ends, or -1.
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

// read takes one line that is not blank.
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

// cut hands out the event that ends here.
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

// keep copies what is left out of the caller's memory.
func (s *Scanner) keep() {
	switch {
	case len(s.buf) == 0:
		s.buf = nil
		return
	case len(s.kept) > 0 && &s.buf[0] == &s.kept[0]:
		return // it grows: to copy it for each piece would be quadratic
	}
	s.kept = append(s.kept[:0], s.buf...)
	s.buf = s.kept
}

// Last is what the stream ended with, as an event, where the blank line after
// it is missing.
func (s *Scanner) Last() (Event, bool) {
	if len(s.buf) == 0 {
		return Event{}, false
	}
	if s.line < len(s.buf) {
		s.read(s.line, len(s.buf))
	}
	return s.cut(len(s.buf)), true
}

// Rest is what came of an event that is not whole.
func (s *Scanner) Rest() []byte { return s.buf }

// TooLong says that an event is longer than Limit.
func (s *Scanner) TooLong() bool { return s.Limit > 0 && len(s.buf) > s.Limit }

// Append appends an event with this data, which is one line.
func Append(b, data []byte) []byte {
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

// Replace appends the event with other data, which is one line, in place of its
// own, and everything else as it came.
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
