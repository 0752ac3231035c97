package response

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/held"
)

// Facts are the facts that a client knows of a response at its end, from the bytes (Reader) or from the simulated
// components that sent it.
type Facts struct {
	Status int
	// Bytes of body received, or -1 if unknown.
	Bytes  int64
	Tokens int
	// Whole reports whether the response is complete. Bad is the reason if it is not, where known.
	Whole bool
	Bad   string
	// Metadata is the echoed metadata, if Echoed.
	Metadata string
	Echoed   bool
	// Error is an error inside the response. Text is the beginning of a response with an error status.
	Error *Error
	Text  string

	// Want is the metadata that the EPP made for a held request. Known is false if it is unknown (a plain request, an
	// external EPP).
	Want  string
	Known bool
}

// Call adds the status of a gRPC call, from its trailers. known is false if there were no trailers.
func (f *Facts) Call(code vllmgrpc.Code, message string, known bool) {
	switch {
	case !known:
		f.Whole, f.Bad = false, cmp.Or(f.Bad, "the response has no gRPC status")
	case code != vllmgrpc.OK:
		f.Status, f.Error, f.Text = vllmgrpc.HTTPOf(code), nil, fmt.Sprintf("gRPC status %d: %s", code, message)
	case f.Bytes == 0:
		f.Whole = false
	}
}

// Outcome returns how the request ended. The reason is empty for a completed one.
func (f *Facts) Outcome() (outcome record.Outcome, reason string) {
	outcome = record.OutcomeOfStatus(f.Status)
	switch {
	case f.Error != nil && f.Error.Type == held.ViolationType:
		return record.Violated, f.Error.Message
	case outcome != record.Completed && f.Error != nil:
		return outcome, f.Error.Message
	case outcome != record.Completed:
		return outcome, f.Text
	case f.Error != nil:
		return record.ServerError, f.Error.Message
	case !f.Whole && f.Bytes == 0:
		return record.Broken, "the response is empty"
	case !f.Whole && f.Bad != "":
		return record.Broken, f.Bad
	case !f.Whole:
		return record.Broken, "the response was cut short"
	case f.Known && !f.Echoed:
		return record.Violated, "the response does not echo the metadata"
	case f.Known && f.Metadata != f.Want:
		return record.Violated, "the response echoes " + f.Metadata + " and not the metadata " + f.Want
	}
	return record.Completed, ""
}

// Ended records the last step of a request whose response has ended, and returns its outcome with details for Finish.
func (f *Facts) Ended(emit func(record.Step, ...record.Detail)) (record.Outcome, []record.Detail) {
	outcome, reason := f.Outcome()
	details := []record.Detail{record.D("status", f.Status), record.D("tokens", f.Tokens)}
	if f.Bytes >= 0 {
		details = append(details, record.D("bytes", f.Bytes))
	}
	if outcome == record.Completed {
		if f.Echoed {
			details = append(details, record.D("metadata", f.Metadata))
		}
		emit(record.LastTokenReceived, details...)
	}
	if reason != "" {
		details = append(details, record.D("reason", reason))
	}
	return outcome, details
}

// The reasons for which a client itself ends a request.
const (
	TimeLimit  = "the client's own time limit"
	ClientLeft = "the client left"
)

// TimedOut returns the outcome and the details of a request that reached the client's time limit. In this and the next
// two, a Status of 0 means that nothing of the response arrived.
func (f *Facts) TimedOut() (record.Outcome, []record.Detail) {
	return record.TimedOut, f.cut(TimeLimit)
}

// Left returns the outcome of a request that the client gave up.
func (f *Facts) Left(reason string) (record.Outcome, []record.Detail) {
	return record.Left, f.cut(reason)
}

// Broke returns the outcome of a request whose connection broke.
func (f *Facts) Broke(reason string) (record.Outcome, []record.Detail) {
	return record.Broken, f.cut(reason)
}

// Finish records how a request ended.
func Finish(emit func(record.Step, ...record.Detail), o record.Outcome, details []record.Detail) {
	if o == record.Left {
		emit(record.ClientLeft)
	}
	emit(record.Finished, append([]record.Detail{record.D("outcome", string(o))}, details...)...)
}

func (f *Facts) cut(reason string) []record.Detail {
	details := []record.Detail{record.D("reason", reason)}
	if f.Status != 0 {
		details = append(details, record.D("status", f.Status), record.D("tokens", f.Tokens))
	}
	return details
}
