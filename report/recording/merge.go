package recording

import (
	"errors"
	"io"
	"slices"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// stream is a recording that is read event by event.
type stream struct {
	events <-chan record.Event
	next   record.Event
	err    error // once events is closed
}

// Merge calls each for the events of recordings, in the order of their times. Equal times keep the order of the list.
func Merge(list []string, each func(record.Event)) error {
	ended := make(chan struct{})
	defer close(ended)
	var open []*stream
	for _, file := range list {
		events := make(chan record.Event, 64)
		x := &stream{events: events}
		go func() {
			defer close(events)
			recorded, err := ReadFile[struct{}](file, func(e record.Event) error {
				select {
				case events <- e:
					return nil
				case <-ended:
					return io.EOF
				}
			})
			if x.err = InputError(err); err == nil && recorded == nil {
				x.err = exit.Errorf(exit.Input, "%s has no summary at its end: its client did not end by itself", file)
			}
		}()
		open = append(open, x)
	}
	more := func(x *stream) bool {
		var ok bool
		x.next, ok = <-x.events
		return ok
	}
	var errs []error
	gone := func(x *stream) bool {
		if more(x) {
			return false
		}
		errs = append(errs, x.err)
		return true
	}
	open = slices.DeleteFunc(open, gone)
	for len(open) > 0 {
		first := 0
		for i, x := range open {
			if x.next.Time < open[first].next.Time {
				first = i
			}
		}
		each(open[first].next)
		if gone(open[first]) {
			open = slices.Delete(open, first, first+1)
		}
	}
	return errors.Join(errs...)
}
