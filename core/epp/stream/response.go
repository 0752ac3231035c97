package stream

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// responseHeaders are the model server's, or Envoy's own 503 or 504, which look
// the same. They may come before the request's end (a server that refuses
// early, a local reply).
func (s *Stream) responseHeaders(head header.List, end bool) {
	if s.state == over || s.state == inResponse {
		return
	}
	s.state = inResponse
	s.status = statusOf(head)
	if s.detailed(record.ResponseHeadersSeen) {
		s.record(s.now, record.ResponseHeadersSeen, record.D("status", s.status))
	}
	if s.holding && !s.success() {
		// No first token will come; the response itself tells the client why.
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

// responseBody is a piece of the response; one that is described is not empty.
func (s *Stream) responseBody(chunk []byte, piece *described.Piece, end bool) {
	if s.state != inResponse {
		return
	}
	some := len(chunk) > 0 || piece != nil
	if s.holding && !some {
		// An empty chunk is no token. One that ends nothing is dropped: the
		// headers before it still wait.
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

// responseTrailers end the response, or follow its last piece.
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

// size is what the record says of a response's size.
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
