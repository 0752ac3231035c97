package report

import (
	"io"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/recording"
)

// ReadFile reads a recording, compressed or not. It calls each with its events in order and returns its summary, nil
// where the recording ends without one. Errors of its content are *recording.LineError.
func ReadFile(path string, each func(record.Event) error) (*Summary, error) {
	return recording.ReadFile[Summary](path, each)
}

// Read is ReadFile from any reader; file is its name in messages.
func Read(file string, r io.Reader, each func(record.Event) error) (*Summary, error) {
	return recording.Read[Summary](file, r, each)
}
