package silicon

import (
	"cmp"
	"errors"
	"math"
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// defaultBlock is the tokens of a KV block.
const defaultBlock = 16

// Where a result names no number of requests, there are defaultWaves for each in flight, or defaultArrivals.
const defaultWaves, defaultArrivals = 10, 1000

// Server is the model server of a row: its hardware and its memory, resolved once for all calibrations.
type Server struct {
	row    *Row
	config engine.Config
	hard   *hardware.Hardware
}

// NewServer resolves the server of a row.
func NewServer(r *Row) (*Server, error) {
	h, err := r.Hardware()
	if err != nil {
		return nil, r.bad("server", err.Error(), "a server of the catalogue")
	}
	seqs, tokens := h.VLLM.MaxNumSeqs, cmp.Or(r.Batched, h.VLLM.MaxNumBatchedTokens)
	longest := r.InputTokens + r.OutputTokens
	plan, err := hardware.PlanMemory(hardware.MemoryConfig{Hardware: h, MaxNumSeqs: seqs, MaxNumBatchedTokens: tokens,
		MaxModelLen: longest})
	var oom *hardware.OutOfMemoryError
	if errors.As(err, &oom) && plan.Weights+plan.Runtime < plan.Usable {
		// The server ran, so that its cache held a few sequences.
		err, plan.NumGPUBlocks = nil, max(plan.NumGPUBlocks, 2*(longest/defaultBlock+1))
	}
	if err != nil {
		return nil, r.bad("server", err.Error(), "a server that fits its accelerators")
	}
	s := &Server{row: r, hard: h, config: engine.Config{MaxNumSeqs: min(seqs, tokens),
		MaxNumBatchedTokens: tokens, MaxModelLen: longest, NumGPUBlocks: plan.NumGPUBlocks, DisablePrefixCaching: true}}
	return s, nil
}

// Play plays the load of the row on its server, and returns the predicted times in milliseconds: the mean or the
// median of TTFT and of TPOT, as the row has them.
func (s *Server) Play(c *latency.Calibration) (ttft, tpot float64, err error) {
	timer, err := latency.New(latency.Config{Kind: latency.KindVLLM, Hardware: s.hard,
		Calibration: &latency.CalibrationFile{Parameters: *c}})
	if err != nil {
		return 0, 0, err
	}
	config := s.config
	config.Timer = timer
	core, err := enginecore.New(enginecore.Config{Engine: config})
	if err != nil {
		return 0, 0, err
	}
	l := &load{row: s.row, core: core, draw: machine.NewDraw(1, "silicon", "lengths", 0)}
	if s.row.Bench {
		l.busy = machine.Time(c.SI(latency.BenchRequest) * 1e9)
	}
	l.requests = cmp.Or(s.row.Requests, defaultWaves*s.row.Concurrency, defaultArrivals)
	for range min(s.row.Concurrency, l.requests) {
		l.send(0)
	}
	if s.row.RequestRate > 0 { // Poisson arrivals
		for at := 0.0; l.sent < l.requests; at -= math.Log(1-l.draw.Float64()) / s.row.RequestRate {
			l.send(machine.Time(at * 1e9))
		}
	}
	for l.done < l.requests {
		at, ok := core.Next()
		switch {
		case len(l.waiting) > 0 && (!ok || l.waiting[0].at <= at):
			f := l.waiting[0]
			l.waiting = l.waiting[1:]
			core.Input(f.at, enginecore.Submit{Sequence: &f.Sequence}, &l.fx)
		case ok:
			core.Advance(at, &l.fx)
		default:
			return 0, 0, s.row.bad("server", "a request that never ends", "a server with room for it")
		}
		l.hear()
	}
	return s.row.TTFT.of(l.first), s.row.TPOT.of(l.each), nil
}

// of returns the mean of times, or their median where only a median was measured.
func (t Time) of(times []float64) float64 {
	sort.Float64s(times)
	if t.Mean == 0 {
		return times[len(times)/2]
	}
	sum := 0.0
	for _, x := range times {
		sum += x
	}
	return sum / float64(len(times))
}

// load is the closed loop of a benchmark's client.
type load struct {
	row         *Row
	core        *enginecore.Core
	fx          enginecore.Effects
	draw        machine.Draw
	requests    int
	sent, done  int
	first, each []float64    // TTFT and TPOT in milliseconds
	busy        machine.Time // the client's work for a request
	idle        machine.Time // when it has done all its work
	waiting     []*flight    // for the client, in order
}

// flight is a request in flight.
type flight struct {
	enginecore.Sequence
	sent, at, first machine.Time // at: at the server
	output          int
}

func (l *load) length(longest int) int {
	low := int(float64(longest)*l.row.Low + 0.5)
	return low + int(l.draw.Float64()*float64(longest-low+1))
}

func (l *load) send(now machine.Time) {
	l.sent++
	f := &flight{sent: now}
	prompt := l.length(l.row.InputTokens)
	f.output = max(2, l.length(l.row.OutputTokens))
	f.Owner = f
	f.Submit = engine.Submit{ID: engine.RequestID(l.sent), PromptTokens: prompt, MaxTokens: f.output, IgnoreEOS: true}
	l.idle = max(l.idle, now) + l.busy
	f.at = l.idle
	l.waiting = append(l.waiting, f)
}

func (l *load) hear() {
	for i := 0; i < len(l.fx.List); i++ {
		e := &l.fx.List[i]
		if e.Sequence == nil {
			continue
		}
		f := e.Sequence.Owner.(*flight)
		x := l.fx.OfEngine(e)
		if x == nil {
			continue
		}
		switch x.Kind {
		case engine.FirstToken:
			f.first = x.At
			l.first = append(l.first, float64(x.At-f.sent)/1e6)
		case engine.Finished, engine.Rejected, engine.Aborted:
			l.done++
			l.each = append(l.each, float64(x.At-f.first)/1e6/float64(f.output-1))
			if l.sent < l.requests {
				l.send(x.At)
			}
		}
	}
	l.fx.Reset()
}
