package modelserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// Injection spoils a share of all requests for as long as it is set. A request's id decides whether that request is
// spoiled.
type Injection struct {
	// Percent is the share of the requests, 0 to 100.
	Percent float64
	// Types are names of openai.FailureTypes, each equally likely. Empty means all of them, unless Fault is set.
	Types []string
	// Fault is a further fault, written as in FaultHeader.
	Fault string
	// MetricsDelay is the time that /metrics takes. With MetricsFrozen, /metrics returns its last page for ever.
	MetricsDelay  time.Duration
	MetricsFrozen bool
}

// maxMetricsDelay bounds MetricsDelay.
const maxMetricsDelay = time.Hour

// SlowMetrics delays /metrics by this time from now on, whatever other faults are injected.
func (s *Server) SlowMetrics(delay time.Duration) error {
	s.injector.changing.Lock()
	defer s.injector.changing.Unlock()
	now := s.injection()
	now.MetricsDelay = delay
	fault, err := now.parse()
	if err == nil {
		s.inject(now, fault)
	}
	return err
}

func (s *Server) injection() Injection {
	s.injector.mu.RLock()
	defer s.injector.mu.RUnlock()
	return s.injector.Injection
}

// metricsFault returns the faults of /metrics.
func (s *Server) metricsFault() (delay time.Duration, frozen bool) {
	s.injector.mu.RLock()
	defer s.injector.mu.RUnlock()
	return s.injector.MetricsDelay, s.injector.MetricsFrozen
}

type injector struct {
	changing sync.Mutex // held from reading the old values until the change is made
	mu       sync.RWMutex
	Injection
	fault lifecycle.Fault
}

// Inject makes the server spoil requests from now on.
func (s *Server) Inject(i Injection) error {
	fault, err := i.parse()
	if err != nil {
		return err
	}
	s.injector.changing.Lock()
	defer s.injector.changing.Unlock()
	s.inject(i, fault)
	return nil
}

// parse checks an injection and parses its fault. The error names the first invalid field.
func (i *Injection) parse() (fault lifecycle.Fault, err error) {
	if !(i.Percent >= 0 && i.Percent <= 100) {
		return fault, fmt.Errorf("failure-injection-rate: expected 0 to 100, got %v", i.Percent)
	}
	for _, t := range i.Types {
		if openai.FailureTypes[t].Status == 0 {
			return fault, fmt.Errorf("failure-types: unknown type %q, expected rate_limit, invalid_api_key, "+
				"context_length, server_error, invalid_request or model_not_found", t)
		}
	}
	if i.MetricsDelay < 0 || i.MetricsDelay > maxMetricsDelay {
		return fault, fmt.Errorf("metrics-delay: expected 0 to %v, got %v", maxMetricsDelay, i.MetricsDelay)
	}
	return modelserver.ParseFault(i.Fault)
}

func (s *Server) inject(i Injection, fault lifecycle.Fault) {
	s.injector.mu.Lock()
	defer s.injector.mu.Unlock()
	s.injector.Injection, s.injector.fault = i, fault
}

// injected draws the fault of a request.
func (s *Server) injected(id string) lifecycle.Fault {
	s.injector.mu.RLock()
	defer s.injector.mu.RUnlock()
	if s.injector.Percent == 0 {
		return lifecycle.Fault{}
	}
	d := machine.DrawFor(s.seed, "server", "injection", id)
	if d.Float64()*100 >= s.injector.Percent {
		return lifecycle.Fault{}
	}
	f := s.injector.fault
	types := s.injector.Types
	if len(types) == 0 && s.injector.Injection.Fault == "" {
		types = slices.Sorted(maps.Keys(openai.FailureTypes))
	}
	if at := &f[lifecycle.AtAnswer]; len(types) > 0 && at.Do != lifecycle.Answer {
		kind := types[d.Intn(len(types))]
		*at = lifecycle.Strike{Do: lifecycle.Answer, N: openai.FailureTypes[kind].Status, Failure: kind}
	}
	return f
}

// adminConfig answers GET and POST /admin/config with llm-d-inference-sim's keys. A key that the request omits keeps
// its value. Concurrent changes run one after another, and a refused change alters nothing.
func (s *Server) adminConfig(w http.ResponseWriter, r *http.Request) {
	now := s.injection()
	if r.Method == http.MethodPost {
		var q struct {
			Percent *float64        `json:"failure-injection-rate"`
			Types   *[]string       `json:"failure-types"`
			Fault   *string         `json:"fault"`
			Delay   *string         `json:"metrics-delay"`
			Frozen  *bool           `json:"metrics-frozen"`
			Fake    json.RawMessage `json:"fake-metrics"`
			TTFT    any             `json:"time-to-first-token"`
			ITL     any             `json:"inter-token-latency"`
			Images  *int            `json:"image-emission-rate"`
		}
		if !wire.ReadJSON(w, r, s.opts.MaxBodyBytes, &q, true) {
			return
		}
		s.injector.changing.Lock()
		defer s.injector.changing.Unlock()
		now = s.injection()
		if q.Images != nil && (*q.Images < 0 || *q.Images > 100) {
			wire.Answer(w, openai.BadRequest("image-emission-rate", "image-emission-rate: expected 0 to 100, got %d.",
				*q.Images))
			return
		}
		if q.Percent != nil {
			now.Percent = *q.Percent
		}
		if q.Types != nil {
			now.Types = *q.Types
		}
		if q.Fault != nil {
			now.Fault = *q.Fault
		}
		if q.Delay != nil {
			d, err := time.ParseDuration(*q.Delay)
			if err != nil {
				wire.Answer(w, openai.BadRequest("metrics-delay",
					"metrics-delay: expected a duration such as 2s, got %q.", *q.Delay))
				return
			}
			now.MetricsDelay = d
		}
		if q.Frozen != nil {
			now.MetricsFrozen = *q.Frozen
		}
		fake := s.fake.Load()
		if q.Fake != nil {
			var err error
			if fake, err = fake.With(q.Fake); err != nil {
				wire.Answer(w, openai.BadRequest("fake-metrics", "%v.", err))
				return
			}
		}
		fault, err := now.parse()
		if err != nil {
			wire.Answer(w, openai.BadRequest("", "%v.", err))
			return
		}
		if bad := s.setTimes(q.TTFT, q.ITL); bad != nil {
			wire.Answer(w, bad)
			return
		}
		s.inject(now, fault) // the server refuses nothing from here on
		if q.Fake != nil {
			s.SetFakeMetrics(fake)
		}
		if q.Images != nil {
			s.imagePercent.Store(int32(*q.Images))
		}
	}
	types, _ := json.Marshal(append([]string{}, now.Types...)) // strings always marshal
	b := openai.Fill(nil, `{"failure-injection-rate":$,"failure-types":$,"fault":$,"metrics-delay":$,`+
		`"metrics-frozen":$`,
		now.Percent, types, now.Fault, now.MetricsDelay.String(), now.MetricsFrozen)
	if t, ok := s.Times(); ok {
		b = openai.Fill(b, `,"time-to-first-token":$,"inter-token-latency":$`, t.TimeToFirstToken.String(),
			t.InterTokenLatency.String())
	}
	b = openai.Fill(b, `,"image-emission-rate":$`, int(s.imagePercent.Load()))
	wire.Write(w, http.StatusOK, wire.JSON, append(s.appendFixed(b), '}'))
}

// appendFixed appends the settings that cannot change while the server runs, under llm-d-inference-sim's names.
func (s *Server) appendFixed(b []byte) []byte {
	names, _ := json.Marshal(s.opts.Models) // strings always marshal
	c := &s.cfg
	return openai.Fill(b, `,"model":$,"served-model-name":$,"max-num-seqs":$,"max-num-batched-tokens":$,`+
		`"max-model-len":$,`+
		`"block-size":$,"kv-cache-size":$,"max-loras":$,"max-cpu-loras":$,"tensor-parallel-size":$,"mode":$,"seed":$`,
		s.opts.Models[0], names, c.MaxNumSeqs, c.MaxNumBatchedTokens, c.MaxModelLen, c.BlockSize, c.NumGPUBlocks,
		c.MaxLoRAs, c.MaxCPULoRAs, max(1, s.opts.TensorParallel),
		string(cmp.Or(s.opts.Content, modelserver.ContentRandom)), strconv.AppendUint(nil, s.seed, 10))
}

// setTimes changes the server's times. A time is a duration or a number of milliseconds.
func (s *Server) setTimes(ttft, itl any) *openai.Error {
	if ttft == nil && itl == nil {
		return nil
	}
	times, _ := s.Times()
	for _, x := range []struct {
		name  string
		value any
		to    *time.Duration
	}{{"time-to-first-token", ttft, &times.TimeToFirstToken}, {"inter-token-latency", itl, &times.InterTokenLatency}} {
		switch v := x.value.(type) {
		case nil:
		case float64:
			if !(v >= 0 && v <= float64(maxTime.Milliseconds())) {
				return openai.BadRequest(x.name, "%s: expected 0 to %d milliseconds, got %v.", x.name,
					maxTime.Milliseconds(), v)
			}
			*x.to = time.Duration(v * float64(time.Millisecond))
		case string:
			d, err := time.ParseDuration(v)
			if err != nil {
				return openai.BadRequest(x.name, "%s: expected a duration such as 200ms or milliseconds, got %q.",
					x.name, v)
			}
			*x.to = d
		default:
			return openai.BadRequest(x.name, "%s: expected a duration such as 200ms or milliseconds.", x.name)
		}
	}
	if err := s.SetTimes(times); err != nil {
		return openai.BadRequest("", "%v.", err)
	}
	return nil
}

// adminEngine answers POST /admin/crash, /admin/restart, /admin/drain and /admin/fail_rank?rank=N, which affect the
// whole engine.
func (s *Server) adminEngine(w http.ResponseWriter, r *http.Request) {
	op := strings.TrimPrefix(r.URL.Path, "/admin/")
	c := engine.Control{}
	switch op {
	case "crash":
		c.Op = engine.OpCrash
	case "restart":
		c.Op = engine.OpRestart
	case "drain":
		// The engine answers when the last request has ended; the handler does not wait for it.
		s.engine.Send(&enginecore.Control{Control: engine.Control{Op: engine.OpDrain}})
		wire.Empty(w)
		return
	case "fail_rank":
		rank, err := strconv.Atoi(r.URL.Query().Get("rank"))
		if last := max(1, s.opts.TensorParallel) - 1; err != nil || rank < 0 || rank > last {
			wire.Answer(w, openai.BadRequest("rank", "rank: expected 0 to %d, got %q.", last,
				r.URL.Query().Get("rank")))
			return
		}
		c.Op, c.Rank = engine.OpFailRank, rank
	default:
		wire.Answer(w, openai.NotFound("", "Not Found"))
		return
	}
	if s.live(c) != nil {
		wire.Answer(w, openai.Conflict("The engine refused to %s: it is not in a state to.", op))
		return
	}
	wire.Empty(w)
}
