package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// echoes serves connections on a line that send each line back.
func echoes(t *testing.T, x *Line) net.Addr {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := x.Listener(inner)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
				_ = c.Close()
			}()
		}
	}()
	return inner.Addr()
}

func asks(c net.Conn, text string) (string, error) {
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// A line that is cut resets its connections, and new ones until it is mended.
func TestLineCut(t *testing.T) {
	var x Line
	at := echoes(t, &x)
	fresh := func(text string) (net.Conn, string, error) {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { _ = c.Close() })
		got, err := asks(c, text)
		return c, got, err
	}
	c, got, err := fresh("a")
	if got != "a\n" || err != nil {
		t.Fatal(got, err)
	}
	if err := x.Cut(true); err != nil {
		t.Fatal(err)
	}
	_, open := asks(c, "b")
	_, _, later := fresh("b")
	for _, err := range []error{open, later} {
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("after the cut: %v", err)
		}
	}
	if err := x.Mend(); err != nil {
		t.Fatal(err)
	}
	if _, got, err := fresh("c"); got != "c\n" || err != nil {
		t.Error(got, err)
	}
}

// On a slow line everything arrives later, in order and whole, also what was written before the end.
func TestLineDelay(t *testing.T) {
	const late = 20 * time.Millisecond
	var x Line
	at := echoes(t, &x)
	c, err := x.Dial((&net.Dialer{}).DialContext)(context.Background(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Delay(late); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, text := range []string{"a\n", "b\n"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReader(c)
	for _, want := range []string{"a\n", "b\n"} {
		if got, err := r.ReadString('\n'); got != want || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if took := time.Since(began); took < 4*late { // a write and a read at both ends
		t.Errorf("the way there and back took %v", took)
	}
	if _, err := c.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// On a slow line, Write waits while a peer that does not read has 4 MiB before it, and a cut ends the wait.
func TestLineFull(t *testing.T) {
	var x Line
	near, far := net.Pipe()
	c := x.add(near).(*conn)
	if err := x.Delay(time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	piece, got := make([]byte, 64<<10), make([]byte, 64<<10)
	written := make(chan error, 1)
	write := func(n int) {
		for range n {
			if _, err := c.Write(piece); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}
	queued := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.bytes
	}
	const n = 2 * mostQueued / (64 << 10)
	go write(n)
	eventually.Is(t, "a full queue", func() bool { return queued() >= mostQueued })
	for range n {
		if _, err := io.ReadFull(far, got); err != nil || queued() > mostQueued {
			t.Fatal(queued(), err)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	go write(n)
	eventually.Is(t, "a full queue again", func() bool { return queued() >= mostQueued })
	if err := x.Cut(false); err != nil {
		t.Fatal(err)
	}
	if err := <-written; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A part without a line has its connections as they are, and cannot break them.
func TestNoLine(t *testing.T) {
	var x *Line
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if x.Listener(l) != l || x.Cut(true) == nil || x.Delay(1) == nil {
		t.Error("nothing is prepared, and something happens")
	}
}
