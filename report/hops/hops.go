// Package hops measures the times between parts of a live run, for the hops of a scenario.
package hops

import (
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Times are the times between parts in a live run, as distributions for a scenario's hops. One is empty where nothing
// was measured.
type Times struct {
	Network string `json:"network,omitempty"`
	Envoy   string `json:"envoy,omitempty"`
	ExtProc string `json:"extProc,omitempty"`
	Sidecar string `json:"sidecar,omitempty"`
	Scrape  string `json:"scrape,omitempty"`
}

// Write prints the hops section of a scenario file.
func (h *Times) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("hops: # as measured\n")
	for name, d := range h.All() {
		fmt.Fprintf(&b, "  %s: %s\n", name, terminal.Printable(d))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// All yields the measured hops by their names in a scenario, none for nil.
func (h *Times) All() iter.Seq2[string, string] {
	return func(yield func(name, dist string) bool) {
		if h == nil {
			return
		}
		for _, f := range [][2]string{{"network", h.Network}, {"envoy", h.Envoy}, {"extProc", h.ExtProc},
			{"sidecar", h.Sidecar}, {"scrape", h.Scrape}} {
			if f[1] != "" && !yield(f[0], f[1]) {
				return
			}
		}
	}
}

// Timeline is the detail with Envoy's own times, in microseconds.
const Timeline = "timeline_us"

// stretch is the way between two points of a request. A hop has several of them.
type stretch uint8

const (
	clientToEnvoy stretch = iota
	envoyToServer
	serverToEnvoy
	envoyToClient
	requestInEnvoy
	answerInEnvoy
	requestToPicker
	answerToPicker
	requestFromSidecar
	answerToSidecar
	scraped
	stretches
)

// Meter measures the hops of a live run from its events. It is safe for concurrent use.
type Meter struct {
	mu   sync.Mutex
	id   func(string) string
	open *simplelru.LRU[string, *passing]
	hist [stretches]*hdrhistogram.Histogram // microseconds
}

// passing has the times at which a request passed the ends of hops.
type passing struct {
	sent, first                       machine.Time   // at the client
	arrived, picked                   machine.Time   // at the picker
	behindEnvoy                       machine.Time   // at the first part behind Envoy
	answered                          machine.Time   // the answer left for Envoy
	legSent, legReceived, legAnswered machine.Time   // the sidecar's last leg
	logged                            machine.Time   // the last byte left Envoy
	timeline                          map[string]any // Envoy's own times in microseconds since the first byte
	sidecar                           bool
	whole                             bool // the answer leaves in one piece
	completed                         bool
}

// longestHop bounds the histograms.
const longestHop = 60 * machine.Second

// NewMeter returns a meter that follows so many requests at once. id returns the key of a request.
func NewMeter(open int, id func(request string) string) *Meter {
	m := &Meter{id: id}
	// The size is above 0, the only error there is.
	m.open, _ = simplelru.NewLRU[string, *passing](max(1, open), nil)
	return m
}

// Record counts one event.
func (m *Meter) Record(e record.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Request == "" || e.Attempt > 1 {
		m.open.Remove(m.id(e.Request)) // the times of several tries cannot be separated
		return
	}
	at := record.At{Hop: e.Hop, Step: e.Step}
	p, known := m.open.Get(m.id(e.Request))
	if !known {
		if at != (record.At{Hop: record.Client, Step: record.RequestSent}) {
			return
		}
		p = &passing{}
		m.open.Add(m.id(e.Request), p)
	}
	// Envoy's log may come before or after the client's last event.
	if p.pass(at, &e); p.completed && p.timeline != nil {
		m.open.Remove(m.id(e.Request))
		m.measure(p)
	}
}

func (p *passing) pass(at record.At, e *record.Event) {
	switch at {
	case record.At{Hop: record.Client, Step: record.RequestSent}:
		p.sent = e.Time
	case record.At{Hop: record.Client, Step: record.FirstTokenReceived}:
		p.first = e.Time
	case record.At{Hop: record.Client, Step: record.LastTokenReceived}:
		p.completed = true
	case record.At{Hop: record.EPP, Step: record.RequestReceived}:
		p.arrived = e.Time
	case record.At{Hop: record.EPP, Step: record.EndpointPicked}:
		p.picked = e.Time
	case record.At{Hop: record.Sidecar, Step: record.RequestReceived}:
		p.sidecar, p.behindEnvoy = true, e.Time
	case record.At{Hop: record.Sidecar, Step: record.DecodeLegSent}:
		p.legSent, p.legReceived, p.legAnswered = e.Time, 0, 0
	case record.At{Hop: record.Sidecar, Step: record.FirstTokenSeen}:
		p.answered = e.Time
	}
	switch at.Hop {
	case record.Server:
		p.served(at.Step, e)
	case record.Envoy:
		p.logged = e.Time
		p.timeline, _ = e.Details.Get(Timeline).(map[string]any)
	}
}

// served notes an event of a model server.
func (p *passing) served(step record.Step, e *record.Event) {
	answers := func() {
		if p.legAnswered = e.Time; !p.sidecar {
			p.answered = e.Time
		}
	}
	switch step {
	case record.RequestReceived, record.Part1Received:
		if p.legReceived = e.Time; !p.sidecar {
			p.behindEnvoy = e.Time
		}
		stream, _ := e.Details.Get("stream").(bool)
		p.whole = !stream && step == record.RequestReceived // its answer leaves in one piece
	case record.FirstTokenSent:
		if !p.whole {
			answers()
		}
	case record.LastTokenSent:
		if p.whole {
			answers()
		}
	}
}

// measure counts the hops of a request that has ended.
func (m *Meter) measure(p *passing) {
	point := func(key string) (machine.Time, bool) {
		us, ok := p.timeline[key].(int)
		return machine.Time(us) * machine.Microsecond, ok
	}
	last, ok := point("response_last")
	begun, ok1 := point("upstream_begun")
	first, ok2 := point("upstream_first")
	out, ok3 := point("response_first")
	if !ok || !ok1 || !ok2 || !ok3 || p.behindEnvoy == 0 || p.answered == 0 || p.first == 0 {
		return
	}
	start := p.logged - last
	m.note(clientToEnvoy, start-p.sent)
	m.note(envoyToServer, p.behindEnvoy-start-begun)
	m.note(serverToEnvoy, start+first-p.answered)
	m.note(envoyToClient, p.first-start-out)
	// With several pools, Envoy calls a body-based router first. Its time is not Envoy's own.
	routed, _ := point("router_request")
	if waited, ok := point("picker_request"); ok && p.picked > 0 {
		m.note(requestInEnvoy, begun-waited-routed)
		m.note(requestToPicker, (waited-(p.picked-p.arrived))/2)
	}
	if waited, ok := point("picker_response"); ok {
		m.note(answerInEnvoy, out-first-waited)
		m.note(answerToPicker, waited/2)
	}
	if p.sidecar && p.legSent > 0 && p.legReceived > 0 && p.legAnswered > 0 {
		m.note(requestFromSidecar, p.legReceived-p.legSent)
		m.note(answerToSidecar, p.answered-p.legAnswered)
	}
}

// Scraped counts how long reading a page of metrics took.
func (m *Meter) Scraped(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(scraped, machine.FromDuration(took))
}

func (m *Meter) note(s stretch, d machine.Time) {
	if m.hist[s] == nil {
		m.hist[s] = hdrhistogram.New(1, int64(longestHop/machine.Microsecond), 3)
	}
	// The value is inside the histogram's bounds, the only error there is.
	_ = m.hist[s].RecordValue(int64(max(0, min(d, longestHop)) / machine.Microsecond))
}

// Times returns the measured distributions, nil without any.
func (m *Meter) Times() *Times {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := Times{Network: m.fit(clientToEnvoy, envoyToServer, serverToEnvoy, envoyToClient),
		Envoy:   m.fit(requestInEnvoy, answerInEnvoy),
		ExtProc: m.fit(requestToPicker, answerToPicker), Sidecar: m.fit(requestFromSidecar, answerToSidecar),
		Scrape: m.fit(scraped)}
	if h == (Times{}) {
		return nil
	}
	return &h
}

// fit returns a lognormal distribution. Its median is the mean of the stretches' medians, so that the whole way takes
// as long as measured, and its 90th percentile is as far from the median as theirs are. It leaves out what happens to
// one request in a hundred when the machine is busy.
func (m *Meter) fit(of ...stretch) string {
	median, spread, n := 0.0, 0.0, 0.0
	for _, s := range of {
		if h := m.hist[s]; h != nil {
			at50, at90 := float64(h.ValueAtQuantile(50)), float64(h.ValueAtQuantile(90))
			median, n = median+at50, n+1
			spread += at50 * math.Log(max(1, at90)/max(1, at50)) / 1.2816 // of a normal distribution's deviation
		}
	}
	if n == 0 {
		return ""
	}
	if median == 0 {
		return "0"
	}
	sigma := min(spread/median, 1.5)
	mean := median / n * math.Exp(sigma*sigma/2)
	deviation := math.Round(mean * math.Sqrt(math.Expm1(sigma*sigma)))
	if deviation < 1 {
		return fmt.Sprintf("%.0fus", math.Round(mean))
	}
	bound := ""
	if median/n*math.Exp(9*sigma) > float64(longestHop/machine.Microsecond) { // no draw is nine deviations away
		bound = ", max=1m" // a scenario's limit
	}
	return fmt.Sprintf("lognormal(%.0fus, %.0fus%s)", max(1, math.Round(mean)), deviation, bound)
}
