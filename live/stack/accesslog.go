package stack

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/envoy"
)

// followAccessLog turns Envoy's own account of each request into an event of
// the hop "envoy".
func (s *Stack) followAccessLog() error {
	if s.o.Recorder == nil {
		return nil
	}
	tail, err := s.Gateway.FollowAccessLog()
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, s.tailStop = context.WithCancel(context.Background())
	s.tailDone = make(chan struct{})
	go func() {
		defer close(s.tailDone)
		defer tail.Close()
		for {
			r, err := tail.Next(ctx)
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return
			}
			if err != nil {
				s.o.Log.Warn("a line of Envoy's access log cannot be read", "error", err)
				continue
			}
			s.o.Recorder.Record(s.logged(r))
		}
	}()
	return nil
}

// endAccessLog waits until every line is read; Envoy has ended.
func (s *Stack) endAccessLog() {
	if s.tailDone == nil {
		return
	}
	<-s.tailDone
	s.tailStop()
}

func (s *Stack) logged(r envoy.AccessRecord) flow.Event {
	took := r.Timeline.ResponseLast
	if took == envoy.NotReached { // the client left before the end
		took = r.Took
	}
	end := r.Start.Sub(s.origin) + took
	details := []flow.Detail{flow.D("status", r.Status), flow.D("from", r.Details)}
	if len(r.Flags) > 0 {
		details = append(details, flow.D("flags", r.Flags))
	}
	details = append(details, flow.D("attempts", r.Attempts), flow.D("bytes_in", r.BytesIn), flow.D("bytes_out", r.BytesOut),
		flow.D("protocol", r.Protocol))
	if t := timeline(&r.Timeline); len(t) > 0 {
		details = append(details, flow.D("timeline_us", t))
	}
	if r.UpstreamFailure != "" {
		details = append(details, flow.D("upstream_failure", r.UpstreamFailure))
	}
	return flow.Event{Time: max(0, machine.FromDuration(end)), Request: r.RequestID, Attempt: r.Attempts, Hop: flow.Envoy, Step: flow.Logged,
		Endpoint: r.Upstream, Details: details}
}

// timeline is what a record tells of when bytes passed, of what was reached.
func timeline(t *envoy.Timeline) map[string]any {
	out := map[string]any{}
	for key, d := range map[string]time.Duration{"upstream_first": t.UpstreamFirst, "upstream_begun": t.UpstreamBegun, "response_first": t.ResponseFirst,
		"response_last": t.ResponseLast, "picker_request": t.PickerRequest, "picker_response": t.PickerResponse,
		"router_request": t.RouterRequest} {
		if d != envoy.NotReached {
			out[key] = int(d.Microseconds())
		}
	}
	return out
}
