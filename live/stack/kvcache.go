package stack

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/kvmanager"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/scenario"
)

// The ports of KV events and of document 003's KV-Cache Manager.
const (
	eventsPort = 5557
	// KeptKVEvents and KeptKVManager are where a manager that is kept up listens.
	KeptKVEvents  = "tcp://127.0.0.1:5555"
	KeptKVManager = "127.0.0.1:8080"
)

// Names that picker configurations may use instead of addresses, which a run
// does not know before it begins.
const (
	managerName = "kv-cache-manager:8080"
	// renderName is any model server of the pool, for token-producer's vllm.url.
	renderName = "model-server:8000"
)

// announcers are the model servers' publishers of KV events, with what they
// published: the truth that indexes are held against after a run.
type announcers struct {
	manager *kvmanager.Manager

	mu    sync.Mutex
	truth *kv.Index
	list  map[int]*announcer // by server
}

// announcer is one server's publisher. It notes each event before it travels.
type announcer struct {
	*kvevents.Publisher
	all *announcers
	as  kv.Topic
}

// Publish implements modelserver.KVPublisher.
func (a *announcer) Publish(e kv.Event) {
	a.all.mu.Lock()
	a.all.truth.Input(0, a.as, &e)
	a.all.mu.Unlock()
	a.Publisher.Publish(e)
}

// startKVManager starts document 003's KV-Cache Manager where the scenario
// wants it, before there are servers that send it events.
func (s *Stack) startKVManager(context.Context) error {
	if !s.pool.ModelServer.KVEvents.Published() {
		return nil
	}
	hasher := kv.Hasher{BlockTokens: s.pool.BlockTokens()}
	s.kv = &announcers{truth: kv.NewIndex(kv.Config{Hasher: hasher, Orphans: 1 << 20}), list: map[int]*announcer{}}
	if !s.pool.KVManager {
		return nil
	}
	o := kvmanager.DefaultOptions()
	o.ZMQBind, o.HTTPAddress, o.Index.Hasher, o.Log = "tcp://"+anyPort, anyPort, hasher, s.o.Log
	if s.o.Keep {
		o.ZMQBind, o.HTTPAddress = KeptKVEvents, KeptKVManager
	}
	o.Index.MaxBlocks = 0 // as many as the servers hold
	var err error
	s.kv.manager, err = kvmanager.Start(o)
	return err
}

// publish makes a server publish its KV events: at its own address, on vLLM's
// port where that is free, and to the manager.
func (s *Stack) publish(so *modelserver.ServerOptions, index int) {
	cfg := &s.pool.ModelServer.KVEvents
	if s.kv == nil {
		return
	}
	so.KVEvents = func(model, endpoint string) (modelserver.KVPublisher, error) {
		pod := endpoint
		if s.pool.KVManager || cfg.Format == scenario.JSONKV {
			pod = so.Name // document 003 knows pods by name
		}
		o := kvevents.PublisherOptions{Topic: kv.Topic{Pod: pod, Model: model}, Interval: cfg.Interval, Connect: slices.Clone(cfg.Connect),
			BlockBytes: so.Engine.KVBytesPerToken * int64(s.pool.BlockTokens()), CapacityBlocks: so.Engine.NumGPUBlocks, Log: s.o.Log}
		if s.kv.manager != nil {
			o.Connect = append(o.Connect, s.kv.manager.ZMQEndpoint())
		}
		switch cfg.Format {
		case scenario.MapKV:
			o.Format = kvevents.MsgpackMap
		case scenario.JSONKV:
			o.Format = kvevents.JSON
		}
		p, err := bindAt(o, endpoint, s.places != nil && s.places.lock != nil)
		if err != nil {
			return nil, err
		}
		a := &announcer{Publisher: p, all: s.kv, as: kv.Topic{Pod: so.Name, Model: model}}
		s.kv.mu.Lock()
		s.kv.list[index] = a
		s.kv.mu.Unlock()
		return a, nil
	}
}

// bindAt binds on a server's address: on vLLM's port where the server has the
// address to itself and nobody else took the port, else on any.
func bindAt(o kvevents.PublisherOptions, endpoint string, own bool) (*kvevents.Publisher, error) {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return nil, err
	}
	if own {
		o.Bind = "tcp://" + net.JoinHostPort(host, strconv.Itoa(eventsPort))
		if p, err := kvevents.NewPublisher(o); err == nil {
			return p, nil
		}
	}
	o.Bind = "tcp://" + net.JoinHostPort(host, "0")
	return kvevents.NewPublisher(o)
}

// eventsOf is where an endpoint publishes; the picker dials it there.
func (s *Stack) eventsOf(e *picker.Endpoint) (events, replay string) {
	if s.kv == nil {
		return "", ""
	}
	s.kv.mu.Lock()
	defer s.kv.mu.Unlock()
	if a := s.kv.list[slices.Index(s.Endpoints, e.HostPort())]; a != nil {
		return a.Endpoint(), a.ReplayEndpoint()
	}
	return "", ""
}

// hosts are the names that picker configurations may use.
func (s *Stack) hosts() map[string]string {
	m := map[string]string{}
	if len(s.Endpoints) > 0 {
		m[renderName] = s.Endpoints[0]
	}
	if s.kv != nil && s.kv.manager != nil {
		m[managerName] = s.kv.manager.HTTPAddress()
	}
	return m
}

// awaitSubscribers waits until every publisher that the picker dials, or that
// sends to the manager, is heard: what is published before that is lost.
func (s *Stack) awaitSubscribers(ctx context.Context) error {
	if s.kv == nil {
		return nil
	}
	want := 0
	if s.picking != nil {
		want = s.picking.kv.Dialling()
	}
	if s.kv.manager != nil {
		want++
	}
	deadline := time.Now().Add(5 * time.Second)
	s.kv.mu.Lock()
	list := make([]*announcer, 0, len(s.kv.list))
	for i := range s.pool.Servers() {
		if a := s.kv.list[i]; a != nil {
			list = append(list, a)
		}
	}
	s.kv.mu.Unlock()
	for _, a := range list {
		for a.Stats().Subscribers < want {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("stack: %s has %d of %d subscribers to its KV events after 5 s; those that are missing would not hear of its cache", a.as.Pod, a.Stats().Subscribers, want)
			}
			pause(ctx, 2*time.Millisecond)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// KVCheck is one index held against what the engines announced.
type KVCheck struct {
	// Index is the plug-in whose index it is, or kv-cache-manager.
	Index string
	// Pods and Blocks (pairs of block and pod) are what the engines hold.
	Pods, Blocks int
	// Missing is what the engines hold and the index lacks, Extra the reverse.
	Missing, Extra int
	// Messages came in; Lag is from the sending of a message to its effect.
	Messages       int
	LagP50, LagP99 time.Duration
}

// String is the line that a run prints.
func (c KVCheck) String() string {
	what := "the union of the engines' blocks"
	if c.Missing+c.Extra > 0 {
		what = fmt.Sprintf("NOT the union of the engines' blocks (%d missing, %d too many)", c.Missing, c.Extra)
	}
	line := fmt.Sprintf("KV index of %s: %d blocks on %d pods, %s", c.Index, c.Blocks, c.Pods, what)
	if c.Messages > 0 {
		line += fmt.Sprintf("; messages were under way for %s (p50), %s (p99)", c.LagP50.Round(100*time.Microsecond), c.LagP99.Round(100*time.Microsecond))
	}
	return line
}

// settle is how long events may be under way after the last request.
const settle = 3 * time.Second

// CheckKV holds every index of the run against what the engines announced,
// once all events had time to arrive.
func (s *Stack) CheckKV(ctx context.Context) []KVCheck {
	if s.kv == nil {
		return nil
	}
	deadline := time.Now().Add(settle + s.pool.ModelServer.KVEvents.Interval)
	for {
		checks := s.checkKV()
		equal := !slices.ContainsFunc(checks, func(c KVCheck) bool { return c.Missing+c.Extra > 0 })
		if equal || ctx.Err() != nil || time.Now().After(deadline) {
			return checks
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func (s *Stack) checkKV() []KVCheck {
	truth := map[string][]kv.Key{} // by server name
	s.kv.mu.Lock()
	for i := range s.pool.Servers() {
		if a := s.kv.list[i]; a != nil {
			truth[a.as.Pod] = s.kv.truth.Keys(a.as.Pod)
		}
	}
	s.kv.mu.Unlock()
	var out []KVCheck
	add := func(name string, held func(i int, server string) []kv.Key, state *epp.KVState) {
		c := KVCheck{Index: name}
		for i, server := range s.Names {
			keys := truth[server]
			c.Blocks += len(keys)
			if len(keys) > 0 {
				c.Pods++
			}
			missing, extra := difference(keys, held(i, server))
			c.Missing += missing
			c.Extra += extra
		}
		if state != nil {
			c.Messages, c.LagP50, c.LagP99 = state.Messages, state.LagP50, state.LagP99
		}
		out = append(out, c)
	}
	if s.picking != nil {
		for _, state := range s.picking.kv.State() {
			if state.BlockTokens == s.pool.BlockTokens() { // others have other keys
				add(state.Plugin, func(i int, _ string) []kv.Key { return state.Blocks[s.Endpoints[i]] }, &state)
			}
		}
	}
	if s.kv.manager != nil {
		add("kv-cache-manager", func(_ int, server string) []kv.Key { return s.kv.manager.Keys(server) }, nil)
	}
	return out
}

// difference counts what only one of two sorted lists has.
func difference(a, b []kv.Key) (onlyA, onlyB int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			onlyA++
			a = a[1:]
		default:
			onlyB++
			b = b[1:]
		}
	}
	return onlyA + len(a), onlyB + len(b)
}

func (s *Stack) stopKVManager() {
	if s.kv != nil && s.kv.manager != nil {
		s.kv.manager.Close()
	}
}
