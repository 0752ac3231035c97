// Package meter shows on a terminal how far runs have come. Begin with Watch.
package meter

import (
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// meter is the last line of a terminal while a command that decides plays runs: what it plays, how many have ended, and
// the wall time left. Rows scroll above it.
type meter struct {
	o     *console.Console
	mu    sync.Mutex
	what  string
	began time.Time // of what
	shown time.Time // the last line
}

// meterEvery is the least time between two lines about the same runs.
const meterEvery = 50 * time.Millisecond

// Watch shows a player's runs on a terminal; on others, nothing is shown. stop clears the line.
func Watch(o *console.Console, p *search.Player) (stop func()) {
	if !o.Terminal || !o.Color() {
		return func() {}
	}
	m := &meter{o: o}
	p.Progress = m.show
	p.Row = func(text string) { m.write(terminal.Wrap(terminal.Printable(text), 2, o.Columns) + "\n") }
	return func() { m.write("") }
}

// show writes the line.
func (m *meter) show(what string, done, of int) {
	m.mu.Lock()
	if m.what != what {
		m.what, m.began = what, time.Now()
	}
	left := time.Since(m.began) / time.Duration(max(1, done)) * time.Duration(of-done)
	due := done == 0 || done == of || time.Since(m.shown) >= meterEvery
	if due {
		m.shown = time.Now()
	}
	m.mu.Unlock()
	if !due {
		return
	}
	text := fmt.Sprintf("%d of %d %s", done, of, what)
	if of == 0 {
		text = fmt.Sprintf("%d %s", done, what)
	}
	if done > 0 && left > time.Second/2 {
		text += fmt.Sprintf(", about %s left", time.Duration(math.Ceil(left.Seconds()))*time.Second)
	}
	if r := []rune(terminal.Printable(text)); m.o.Columns > 1 && len(r) >= m.o.Columns {
		text = string(r[:m.o.Columns-1])
	}
	m.write(text)
}

// write replaces the line.
func (m *meter) write(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = io.WriteString(m.o.Out(), "\r\x1b[K"+text) // an error comes back where the result is printed
}
