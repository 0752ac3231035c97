package envoy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// Recording turns the access log of a running Envoy into events of the hop "envoy".
type Recording struct {
	done chan struct{}
	stop context.CancelFunc
}

// Record starts a Recording; times count from origin. With routes, each event names the request's route. Lines that
// cannot be parsed are logged.
func (p *Process) Record(to record.Recorder, origin time.Time, log *slog.Logger, routes bool) (*Recording, error) {
	tail, err := p.FollowAccessLog()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	x := &Recording{make(chan struct{}), stop}
	go func() {
		defer close(x.done)
		defer tail.Close()
		for {
			r, err := tail.Next(ctx)
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return
			}
			if err != nil {
				log.Warn("a line of Envoy's access log cannot be read", "error", err)
				continue
			}
			e := r.event(origin)
			if routes && r.Route != "" {
				e.Details = append(e.Details, record.D("route", r.Route))
			}
			to.Record(e)
		}
	}()
	return x, nil
}

// End waits until every line is read. Envoy must have ended. A nil Recording has no lines.
func (x *Recording) End() {
	if x != nil {
		<-x.done
		x.stop()
	}
}

func (r *AccessRecord) event(origin time.Time) record.Event {
	took := r.Timeline.ResponseLast
	if took == NotReached { // the client left before the end
		took = r.Took
	}
	end := r.Start.Sub(origin) + took
	details := []record.Detail{record.D("status", r.Status), record.D("from", r.Details)}
	if len(r.Flags) > 0 {
		details = append(details, record.D("flags", r.Flags))
	}
	details = append(details, record.D("attempts", r.Attempts), record.D("bytes_in", r.BytesIn),
		record.D("bytes_out", r.BytesOut),
		record.D("protocol", r.Protocol))
	if t := timeline(&r.Timeline); len(t) > 0 {
		details = append(details, record.D("timeline_us", t))
	}
	if r.UpstreamFailure != "" {
		details = append(details, record.D("upstream_failure", r.UpstreamFailure))
	}
	return record.Event{Time: max(0, machine.FromDuration(end)), Request: r.RequestID, Attempt: r.Attempts,
		Hop: record.Envoy, Step: record.Logged,
		Endpoint: r.Upstream, Details: details}
}

// timeline returns the reached points of a request's Timeline, for the record.
func timeline(t *Timeline) map[string]any {
	out := map[string]any{}
	for key, d := range map[string]time.Duration{"upstream_first": t.UpstreamFirst, "upstream_begun": t.UpstreamBegun,
		"response_first": t.ResponseFirst,
		"response_last":  t.ResponseLast, "picker_request": t.PickerRequest, "picker_response": t.PickerResponse,
		"router_request": t.RouterRequest} {
		if d != NotReached {
			out[key] = int(d.Microseconds())
		}
	}
	return out
}
