package epp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/live/serve"
)

// pageFetch fetches one page over and over, on a connection of its own and without goroutines beside the caller's. The
// process that decides where requests go fetches 1,280 pages a second for a pool of 64 endpoints. There http.Client
// costs several times as much, in switches between goroutines and in buffers for the garbage collector, and requests
// wait behind it.
//
// It speaks plain HTTP/1.1. TLS is left to http.Client. Neither follows redirects.
type pageFetch struct {
	url     string
	client  *http.Client
	timeout time.Duration
	request *http.Request
	text    []byte // of the request
	host    string // dialled
	conn    net.Conn
	leave   func() bool // ends the connection's watch over its context
	hands   *pageHands
}

// maxHeadBytes limits the head of an answer.
const maxHeadBytes = 1 << 20

// pageHands are the buffers for reading a page. They are lent for one page, so that a large pool does not keep a page's
// worth of memory per endpoint.
type pageHands struct {
	limit io.LimitedReader
	in    *bufio.Reader
	page  []byte
}

var pageHandsPool = sync.Pool{New: func() any {
	h := &pageHands{}
	h.in = bufio.NewReaderSize(&h.limit, 64<<10)
	return h
}}

// maxKeptPage is the longest page whose memory is kept for others.
const maxKeptPage = 1 << 20

func newPageFetch(client *http.Client, timeout time.Duration, url string) *pageFetch {
	return &pageFetch{url: url, client: client, timeout: timeout}
}

// page fetches it. The bytes are good until done.
func (f *pageFetch) page(ctx context.Context) ([]byte, error) {
	if f.request == nil {
		if err := f.prepare(ctx); err != nil {
			return nil, err
		}
	}
	if f.text == nil {
		return f.byClient(ctx)
	}
	for {
		reused := f.conn != nil
		page, again, err := f.ask(ctx)
		if err == nil || !reused || !again {
			return page, err
		} // else the server has closed the idle connection
	}
}

func (f *pageFetch) prepare(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return err
	}
	f.request = req
	if req.URL.Scheme != "http" {
		return nil
	}
	var text bytes.Buffer
	if err := req.Write(&text); err != nil {
		return err
	}
	f.text, f.host = text.Bytes(), req.URL.Host
	if req.URL.Port() == "" {
		f.host = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	return nil
}

// ask sends the request and reads the answer. again reports that no part of an answer came.
func (f *pageFetch) ask(ctx context.Context) (page []byte, again bool, err error) {
	deadline := time.Now().Add(f.timeout)
	if f.conn == nil {
		d := net.Dialer{Deadline: deadline}
		conn, err := d.DialContext(ctx, "tcp", f.host)
		if err != nil {
			return nil, false, err
		}
		f.conn, f.leave = conn, context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	if err = f.conn.SetDeadline(deadline); err == nil {
		_, err = f.conn.Write(f.text)
	}
	h := f.take()
	if err == nil {
		_, err = h.in.Peek(1)
	}
	if err != nil {
		f.close() // an answer may still come, and would be taken for the next one's
		return nil, !errors.Is(err, os.ErrDeadlineExceeded), fmt.Errorf("GET %s: %w", f.url, err)
	}
	resp, err := http.ReadResponse(h.in, f.request)
	if err != nil {
		f.close()
		return nil, false, fmt.Errorf("GET %s: %w", f.url, err)
	}
	defer resp.Body.Close()
	if h.page, err = readPage(resp, h.page[:0]); err != nil {
		f.close()
		return nil, false, fmt.Errorf("GET %s: %w", f.url, err)
	}
	if resp.Close || len(h.page) > metrics.MaxPageBytes || h.in.Buffered() > 0 {
		f.close()
	}
	if resp.StatusCode != http.StatusOK {
		return nil, false, serve.Status(resp)
	}
	return h.page, false, nil
}

// readPage reads a body to its end, or to where it is too long for a page.
func readPage(resp *http.Response, page []byte) ([]byte, error) {
	if n := resp.ContentLength; n > 0 {
		page = slices.Grow(page, int(min(n, metrics.MaxPageBytes))+1)
	}
	body := io.LimitReader(resp.Body, metrics.MaxPageBytes+1)
	for {
		page = slices.Grow(page, 512)
		n, err := body.Read(page[len(page):cap(page)])
		page = page[:len(page)+n]
		if err == io.EOF {
			return page, nil
		}
		if err != nil {
			return page, err
		}
	}
}

// byClient fetches the page with the source's http.Client.
func (f *pageFetch) byClient(ctx context.Context) ([]byte, error) {
	resp, err := f.client.Do(f.request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(io.LimitReader(resp.Body, metrics.MaxPageBytes+1))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = serve.Status(resp)
	}
	return page, err
}

func (f *pageFetch) take() *pageHands {
	if f.hands == nil {
		f.hands = pageHandsPool.Get().(*pageHands)
	}
	f.hands.limit = io.LimitedReader{R: f.conn, N: maxHeadBytes + 2*metrics.MaxPageBytes} // chunks have heads too
	f.hands.in.Reset(&f.hands.limit)
	return f.hands
}

// done ends the use of what page returned.
func (f *pageFetch) done() {
	if h := f.hands; h != nil {
		f.hands = nil
		h.limit.R = nil
		if cap(h.page) > maxKeptPage {
			h.page = nil
		}
		pageHandsPool.Put(h)
	}
}

// close ends the connection; the next page is fetched over a new one.
func (f *pageFetch) close() {
	if f.conn != nil {
		f.leave()
		_ = f.conn.Close()
		f.conn = nil
	}
}
