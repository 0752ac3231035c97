package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// lead is how long after the last client is there all of them begin.
const lead = 2 * time.Second

// Together waits, at most patience, until all of several clients that share a directory are there, and returns when
// they begin. The first client, with index 0, chooses that time, by its own clock.
func Together(ctx context.Context, dir string, index, of int, patience time.Duration) (began time.Time, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	at := func(name string, index int) string { return filepath.Join(dir, fmt.Sprintf("%s-%d", name, index)) }
	late := func(part int) error {
		return fmt.Errorf("part %d of %d is not there after %s; expected all to start together, or a longer --wait",
			part, of, patience)
	}
	if err := files.Replace(at("ready", index), nil); err != nil {
		return began, err
	}
	for next := 0; index == 0 && next < of; {
		if _, err := os.Stat(at("ready", next)); err == nil {
			next++
		} else if !pause.For(ctx, 20*time.Millisecond) {
			return began, late(next)
		}
	}
	start := at("start", of)
	if _, err := os.Stat(start); index == 0 && err != nil {
		text := time.Now().Add(lead).Format(time.RFC3339Nano)
		if err := files.Replace(start, []byte(text)); err != nil {
			return began, err
		}
	}
	for {
		text, err := files.Read(start, 100)
		if err == nil {
			if began, err = time.Parse(time.RFC3339Nano, string(text)); err != nil || time.Since(began) > 0 {
				return began, fmt.Errorf("%s: the clients began at %s, without this one; expected an empty directory",
					dir, text)
			}
			pause.For(ctx, time.Until(began))
			return began, nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return began, late(0)
		}
	}
}
