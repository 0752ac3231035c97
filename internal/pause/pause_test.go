package pause_test

import (
	"context"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/pause"
)

func TestFor(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for d, want := range map[time.Duration]bool{-time.Second: true, 0: true, time.Nanosecond: true} {
		if got := pause.For(t.Context(), d); got != want {
			t.Errorf("%v: %v, expected %v", d, got, want)
		}
		if pause.For(ended, d) {
			t.Errorf("%v passed for nobody", d)
		}
	}
	if pause.For(ended, time.Hour) {
		t.Error("an hour passed for nobody")
	}
	soon, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if pause.For(soon, time.Hour) {
		t.Error("an hour passed in a millisecond")
	}
}

func TestWake(t *testing.T) {
	reader := make(chan struct{}, 1)
	pause.Wake(reader)
	pause.Wake(reader) // does not wait for the reader
	<-reader
	select {
	case <-reader:
		t.Error("two wake-ups in a row count twice")
	default:
	}
}
