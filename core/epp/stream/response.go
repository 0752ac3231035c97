package stream

import (
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// responseHeaders takes the model server's response headers, or those of Envoy's own 503 or 504, which look the same.
// They may come before the request's end (a server that refuses early, a local reply).
func (s *Stream) responseHeaders(head header.List, end bool) {
	if s.state == over || s.state == inResponse {
		return
	}
	s.state = inResponse
	s.status, _ = strconv.Atoi(head.Get(":status")) // 0 without one
	if s.detailed(record.ResponseHeadersSeen) {
		s.record(s.now, record.ResponseHeadersSeen, record.D("status", s.status))
	}
	if s.holding && !s.success() {
		// No first token will come; the response itself explains why to the client.
		s.holding, s.deadline = false, machine.Never
	}
	switch {
	case s.holding && end:
		s.answer(502, fmt.Sprintf("the model server answered %d without a token", s.status))
	case s.holding:
		// The headers wait for the first token.
	default:
		s.passResponseHeaders()
		if end || s.modes.Response == NoBody {
			s.responseEnded()
		}
	}
}

func (s *Stream) success() bool { return s.status >= 200 && s.status < 300 }

func (s *Stream) passResponseHeaders() {
	s.emit(Effect{Kind: SendResponseHeaders, Set: s.decided.ResponseSet})
}

// responseBody takes a piece of the response. A described piece is never empty.
func (s *Stream) responseBody(chunk []byte, piece *described.Piece, end bool) {
	if s.state != inResponse {
		return
	}
	some := len(chunk) > 0 || piece != nil
	if s.holding && s.respBodySeen {
		return // part 2 was lost
	}
	if s.holding && !some {
		// An empty chunk is not a token. One before the end is dropped, since the headers before it still wait.
		if end {
			s.answer(502, fmt.Sprintf("the model server answered %d and ended before its first token", s.status))
		}
		return
	}
	if some && !s.respBodySeen {
		s.respBodySeen = true
		if s.success() && s.recording() {
			s.record(s.now, record.FirstTokenSeen, s.size(len(chunk))...)
		}
		if s.holding && s.cfg.LosePart2 {
			return
		}
		if s.holding {
			s.sendPart2()
			s.passResponseHeaders()
		}
	}
	s.respBytes += int64(len(chunk))
	s.emit(Effect{Kind: SendResponseBody, Body: chunk, Piece: piece, End: end})
	if end {
		s.responseEnded()
	}
}

// responseTrailers ends the response, or follows its last piece.
func (s *Stream) responseTrailers() {
	if s.result == PassedThrough {
		s.emit(Effect{Kind: PassResponseTrailers}) // Envoy waits for the answer
	}
	if s.state != inResponse {
		return
	}
	if s.holding {
		s.answer(502, fmt.Sprintf("the model server answered %d and ended before its first token", s.status))
		return
	}
	s.emit(Effect{Kind: PassResponseTrailers})
	s.responseEnded()
}

// size returns a response's size as a detail for the record.
func (s *Stream) size(bytes int) []record.Detail {
	if s.cfg.StandIns {
		return nil
	}
	return []record.Detail{record.D("bytes", bytes)}
}

func (s *Stream) responseEnded() {
	if s.detailed(record.ResponseEndSeen) {
		s.record(s.now, record.ResponseEndSeen, append(s.size(int(s.respBytes)), record.D("status", s.status))...)
	}
	s.end(PassedThrough)
}
