package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/kvmanager"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/live/serve"
	"github.com/windtunnel/windtunnel/report"
)

// The ports of KV events.
const (
	eventsPort = 5557
	replayPort = 5558 // as in vLLM's own examples
)

// announcers are the model servers' publishers of KV events.
type announcers struct {
	manager *kvmanager.Manager

	mu    sync.Mutex
	names kvindex.Names          // the index's names of the engines' blocks, by rule
	list  map[int]*announcer     // by server
	pods  map[string]*announcer  // by every name of a pod
	lag   map[string]*report.Lag // by index
	deaf  bool                   // an incident has lost events
	first time.Time              // of the first event; zero before it
}

// announcer is one server's publisher. It notes each event before it sends it.
type announcer struct {
	*kvevents.Publisher
	all  *announcers
	as   kv.Topic
	made madeLog
	mute atomic.Bool // an incident loses its events
}

// Publish implements modelserver.KVPublisher.
func (a *announcer) Publish(e kv.Event) {
	a.all.mu.Lock()
	a.all.names.Note(a.as, e)
	if a.all.first.IsZero() {
		a.all.first = time.Now()
	}
	mute := a.mute.Load()
	a.all.deaf = a.all.deaf || mute
	a.all.mu.Unlock()
	if mute {
		return
	}
	a.Publisher.Publish(e)
}

// understand adds a rule by which the names of engines' blocks are translated.
func (x *announcers) understand(h kv.Hasher) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names.Understand(h)
}

// startKVManager starts document 003's KV-Cache Manager of a scenario that has one, before the servers that send it
// events.
func (s *Pool) startKVManager(context.Context) error {
	if s.pool.Events == nil {
		return nil
	}
	hasher := kv.Hasher{BlockTokens: s.pool.BlockTokens}
	s.kv = &announcers{names: kvindex.Names{}, list: map[int]*announcer{}, pods: map[string]*announcer{},
		lag: map[string]*report.Lag{}}
	m := s.pool.Events.Manager
	if m == nil {
		return nil
	}
	o := kvmanager.DefaultOptions()
	p, err := new(cluster.Addresses).NewPod(&s.Run, "", "kv-cache-manager")
	if err != nil {
		return err
	}
	p.Fixed = map[int]string{}
	for at, port := range map[string]int{o.HTTPAddress: m.Port, o.ZMQBind: m.EventsPort} {
		p.Fixed[serve.PortOf(at)] = s.o.at(0, port, m.Number, strings.TrimPrefix(at, "tcp://"))
	}
	if s.addresses.Own() {
		o.ReplayPort = replayPort
	}
	o.Index.Hasher, o.Index.MaxBlocks = hasher, 0 // as many as the servers hold
	s.kv.understand(hasher)
	indexed := s.kv.indexed("")
	o.OnMessage = func(r kvevents.Report) { indexed(report.ManagerIndex, r) }
	o.Tokenizer = s.pool.Tokens.Tokenizer
	err = p.StartManager(o)
	s.kv.manager = p.Manager
	return err
}

// heartbeat lets a restarted manager learn of servers that have no events to send, and ask them.
const heartbeat = time.Second

// publish makes a server publish its KV events: at its own address, on vLLM's port if that is free, and to the
// manager.
func (s *Pool) publish(so *modelserver.ServerOptions, index int) {
	cfg := s.pool.Events
	if s.kv == nil {
		return
	}
	so.KVEvents = func(model, endpoint string) (modelserver.KVPublisher, error) {
		pod := endpoint
		if cfg.Manager != nil || cfg.Format == plan.JSONEvents {
			pod = so.Name // document 003 knows pods by name
		}
		o := kvevents.PublisherOptions{Topic: kv.Topic{Pod: pod, Model: model}, Interval: cfg.Interval,
			Connect:    slices.Clone(cfg.Connect),
			BlockBytes: so.Engine.KVBytesPerToken * int64(s.pool.BlockTokens), CapacityBlocks: so.Engine.NumGPUBlocks,
			Log: s.o.Log}
		if s.kv.manager != nil {
			o.Connect = append(o.Connect, s.kv.manager.ZMQEndpoint())
			o.Heartbeat = heartbeat
		}
		switch cfg.Format {
		case plan.MapEvents:
			o.Format = kvevents.MsgpackMap
		case plan.JSONEvents:
			o.Format = kvevents.JSON
		}
		a := &announcer{all: s.kv, as: kv.Topic{Pod: so.Name, Model: model}}
		o.OnSend = a.made.note
		at := func(events, replay int) (err error) {
			o.Bind, o.Replay = "tcp://"+s.Pods[index].On(events), "tcp://"+s.Pods[index].On(replay)
			a.Publisher, err = kvevents.NewPublisher(o)
			return err
		}
		if at(eventsPort, replayPort) != nil { // another program may have vLLM's ports on all addresses
			if err := at(0, 0); err != nil {
				return nil, err
			}
		}
		s.kv.mu.Lock()
		s.kv.list[index], s.kv.pods[so.Name], s.kv.pods[endpoint] = a, a, a
		s.kv.mu.Unlock()
		return a, nil
	}
}

// eventsOf are the addresses at which an endpoint publishes, for the picker to dial.
func (s *Pool) eventsOf(e *picker.Endpoint) (events, replay string) {
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
func (s *Pool) hosts() plan.Services {
	manager, frontend, server := "", "", ""
	if len(s.Endpoints) > 0 {
		server = s.Endpoints[0]
	}
	if s.kv != nil && s.kv.manager != nil {
		manager = s.kv.manager.HTTPAddress()
	}
	if s.frontend != nil {
		frontend = s.frontend.Addr()
	}
	return s.pool.Services(manager, frontend, server)
}

// startTimeout bounds the waits of the start. An idle machine needs a fraction of a second.
const startTimeout = time.Minute

// awaitSubscribers waits until every publisher has its subscribers, the pickers and the manager: events that are
// published before that are lost.
func (s *Pool) awaitSubscribers(ctx context.Context) error {
	if s.kv == nil {
		return nil
	}
	want := 0
	for _, k := range s.Pickers {
		want += k.now().Dialling()
	}
	if s.kv.manager != nil {
		want++
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, a := range s.announced() {
		for a.Stats().Subscribers < want {
			if !pause.For(ctx, 2*time.Millisecond) {
				return fmt.Errorf("stack: %s has %d of %d subscribers to its KV events: %w; the missing ones "+
					"would not learn of its cache", a.as.Pod, a.Stats().Subscribers, want, ctx.Err())
			}
		}
	}
	return nil
}

// announced are the servers' publishers, by the servers' indexes.
func (s *Pool) announced() (out []*announcer) {
	s.kv.mu.Lock()
	defer s.kv.mu.Unlock()
	for i := range s.pool.Servers {
		if a := s.kv.list[i]; a != nil {
			out = append(out, a)
		}
	}
	return out
}

// KVEvents are the addresses at which KV events are published, and the one at which the KV-Cache Manager takes them.
func (s *Pool) KVEvents() (out []string) {
	if s.kv == nil {
		return nil
	}
	for _, a := range s.announced() {
		out = append(out, a.Endpoint())
	}
	if s.kv.manager != nil {
		out = append(out, s.kv.manager.ZMQEndpoint())
	}
	return out
}
